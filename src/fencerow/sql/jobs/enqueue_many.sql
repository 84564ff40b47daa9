-- enqueue_many: nothing -> ready | scheduled (when its time is ahead)
-- fence:   none; with an idempotency key the same call again answers the same job, created = false. A key whose job was not
--          created, because another holds its unique key, is not kept: asked again it finds that holder, or creates
-- locks:   none for plain jobs (inserts only, at any isolation level); else idempotency keys, then unique keys, each in
--          key order: waits for an undecided transaction with the same key, at most lock_timeout (55P03)
-- params:  arrays of one length, or NULL for "none given"; run_ats in absolute time or run_ins from now (database clock);
--          tags: JSON arrays; unique_untils: finished, started or time (then unique_fors); on_conflicts: existing,
--          replace, extend or raise; parent: the job whose handler enqueues them
-- returns: one row per input, in their order: job id, and whether this call created it
-- plan:    inserts; task_pkey per row only when queue or priority is left to the task
CREATE OR REPLACE FUNCTION fencerow.enqueue_many(
  tasks text[], payloads jsonb[], queues text[] DEFAULT NULL, priorities integer[] DEFAULT NULL,
  run_ats timestamptz[] DEFAULT NULL, run_ins interval[] DEFAULT NULL, max_attempts integer[] DEFAULT NULL,
  timeouts interval[] DEFAULT NULL, on_losts text[] DEFAULT NULL, tags jsonb[] DEFAULT NULL, headers jsonb[] DEFAULT NULL,
  idempotency_keys text[] DEFAULT NULL, unique_keys text[] DEFAULT NULL, unique_untils text[] DEFAULT NULL,
  unique_fors interval[] DEFAULT NULL, on_conflicts text[] DEFAULT NULL, parent bigint DEFAULT NULL
) RETURNS TABLE (id bigint, created boolean)
LANGUAGE plpgsql VOLATILE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '1s'
AS $body$
#variable_conflict use_column
DECLARE
  v_at timestamptz := fencerow.now();
  v_count integer := coalesce(cardinality(tasks), 0);
  v_ids bigint[];
  v_asked bigint[];
  v_new boolean[];
  v_queues text[];
BEGIN
  IF v_count <> ANY (ARRAY[
       coalesce(cardinality(payloads), -1), cardinality(queues), cardinality(priorities), cardinality(run_ats),
       cardinality(run_ins), cardinality(max_attempts), cardinality(timeouts), cardinality(on_losts), cardinality(tags),
       cardinality(headers), cardinality(idempotency_keys), cardinality(unique_keys), cardinality(unique_untils),
       cardinality(unique_fors), cardinality(on_conflicts)]) THEN
    RAISE EXCEPTION 'the arrays of enqueue_many differ in length' USING ERRCODE = 'QF002';
  END IF;
  IF '0 s'::interval > ANY (run_ins) THEN
    RAISE EXCEPTION 'run_in is negative' USING ERRCODE = 'QF002', HINT = 'Give a delay of zero or more.';
  END IF;
  v_ids := ARRAY(SELECT nextval('fencerow.job_id') FROM generate_series(1, v_count));
  IF idempotency_keys IS NOT NULL OR unique_keys IS NOT NULL THEN
    PERFORM fencerow.require_read_committed();
    v_new := array_fill(true, ARRAY[v_count]);
    IF idempotency_keys IS NOT NULL THEN
      SELECT k.ids, k.new INTO v_ids, v_new FROM fencerow.take_idempotency_keys(v_ids, tasks, payloads, idempotency_keys) AS k;
    END IF;
    IF unique_keys IS NOT NULL THEN
      v_asked := v_ids;
      SELECT k.ids, k.new INTO v_ids, v_new FROM fencerow.take_unique_keys(
        v_at, v_ids, v_new, unique_keys, unique_untils, unique_fors, on_conflicts, run_ats, run_ins) AS k;
    END IF;
    IF idempotency_keys IS NOT NULL AND v_asked <> v_ids THEN
      DELETE FROM fencerow.idempotency_key AS k USING unnest(v_asked, v_ids, idempotency_keys) AS u(asked, id, key)
      WHERE u.id <> u.asked AND k.key = u.key AND k.job_id = u.asked;
      v_ids := ARRAY(
        SELECT coalesce(moved.id, u.id)
        FROM unnest(v_ids) WITH ORDINALITY AS u(id, place)
        LEFT JOIN unnest(v_asked, v_ids) AS moved(asked, id) ON moved.asked = u.id AND moved.id <> moved.asked
        ORDER BY u.place);
    END IF;
  END IF;

  WITH asked AS MATERIALIZED (
    SELECT u.job_id, u.task, u.payload, coalesce(u.queue, t.queue, 'default') AS queue,
           coalesce(u.priority, t.priority, 100) AS priority, coalesce(u.run_at, fencerow.later(v_at, u.run_in)) AS run_at,
           u.attempts, u.timeout, u.on_lost, u.tags, u.headers, u.idempotency_key, u.unique_key,
           CASE WHEN u.unique_key IS NOT NULL THEN coalesce(u.unique_until, 'finished') END AS unique_until
    FROM unnest(v_ids, v_new, tasks, payloads, queues, priorities, run_ats, run_ins, max_attempts, timeouts, on_losts, tags,
                headers, idempotency_keys, unique_keys, unique_untils)
      AS u(job_id, new, task, payload, queue, priority, run_at, run_in, attempts, timeout, on_lost, tags,
           headers, idempotency_key, unique_key, unique_until)
    LEFT JOIN fencerow.task AS t ON t.name = CASE WHEN u.queue IS NULL OR u.priority IS NULL THEN u.task END
    WHERE u.new IS NOT FALSE
  ), written AS (
    INSERT INTO fencerow.job (id, created_at, run_at, priority, max_attempts, queue, task, payload, timeout, on_lost, tags,
                              headers, idempotency_key, unique_key, unique_until, parent_id)
    SELECT a.job_id, v_at, a.run_at, a.priority, a.attempts, a.queue, a.task, a.payload, a.timeout, a.on_lost,
           CASE WHEN a.tags IS NOT NULL THEN ARRAY(SELECT jsonb_array_elements_text(a.tags)) END,
           a.headers, a.idempotency_key, a.unique_key, a.unique_until, parent
    FROM asked AS a
  ), soon AS (
    INSERT INTO fencerow.ready (since, job_id, generation, priority, attempt, queue, key_until)
    SELECT v_at, a.job_id, 0, a.priority, 0, a.queue, nullif(a.unique_until, 'time')
    FROM asked AS a WHERE a.run_at IS NULL OR a.run_at <= v_at
  ), later AS (
    INSERT INTO fencerow.scheduled (run_at, job_id, generation, priority, attempt, queue, key_until)
    SELECT a.run_at, a.job_id, 0, a.priority, 0, a.queue, nullif(a.unique_until, 'time')
    FROM asked AS a WHERE a.run_at > v_at
  )
  SELECT array_agg(a.queue) INTO v_queues FROM asked AS a;
  IF v_queues IS NOT NULL THEN
    PERFORM fencerow.wake(v_queues);
  END IF;
  RETURN QUERY SELECT u.job_id, u.new IS NOT FALSE FROM unnest(v_ids, v_new) AS u(job_id, new);
END
$body$;
