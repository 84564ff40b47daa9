-- end_attempts: the one place where an attempt that did not complete is recorded and its ticket moved on. The caller
-- holds the tickets p_tids (a NULL is passed over). Kinds with a charge keep it; released and snoozed give it back.
-- A loss returns at once the first time, later by back-off, and comes back as a suspect; whoever settled is none.
CREATE OR REPLACE FUNCTION fencerow.end_attempts(
  p_tids tid[], p_at timestamptz, p_kinds text[], p_errors text[], p_delays interval[], p_final boolean
) RETURNS TABLE (job_id bigint, generation integer, fate text)
LANGUAGE plpgsql VOLATILE
AS $body$
#variable_conflict use_column
DECLARE
  v_jobs bigint[];
  v_generations integer[];
  v_fates text[];
  v_freed bigint[];
  v_queues text[];
BEGIN
  IF cardinality(p_tids) <> ANY (ARRAY[cardinality(p_kinds), cardinality(p_errors), cardinality(p_delays)]) THEN
    RAISE EXCEPTION 'jobs and their kinds, errors or delays differ in length' USING ERRCODE = 'QF002';
  END IF;
  WITH gone AS (
    DELETE FROM fencerow.running AS r
    USING unnest(p_tids, p_kinds, p_errors, p_delays) AS given(tid, kind, error, delay)
    WHERE r.ctid = given.tid
    RETURNING r.lease_id, r.job_id, r.claimed_at, r.generation, r.attempt, r.cancel_requested, r.suspect, r.key_until,
              given.kind, given.error, given.delay
  ), judged AS MATERIALIZED (
    SELECT g.lease_id, g.job_id, g.claimed_at, g.generation, g.attempt, g.cancel_requested, g.key_until, g.kind, g.error,
           j.queue, j.priority,
           fencerow.fate(g.kind, p_final, g.cancel_requested, g.attempt,
                         coalesce(j.max_attempts, t.max_attempts, 20), coalesce(j.on_lost, t.on_lost, 'retry')) AS fate,
           g.attempt - (g.kind IN ('released', 'snoozed'))::int AS charged,
           CASE g.kind WHEN 'lost' THEN true WHEN 'released' THEN g.suspect ELSE false END AS suspect,
           CASE
             WHEN g.kind <> 'lost' THEN least(coalesce(g.delay, '0 s'), '365 days')
             WHEN EXISTS (SELECT FROM fencerow.attempt AS a WHERE a.job_id = g.job_id AND a.kind = 'lost')
               THEN fencerow.backoff(g.attempt, coalesce(t.backoff_base, '2 s'), coalesce(t.backoff_cap, '1 h'))
             ELSE '0 s'
           END AS delay
    FROM gone AS g
    JOIN fencerow.job AS j ON j.id = g.job_id
    LEFT JOIN fencerow.task AS t ON t.name = j.task
  ), recorded AS (
    INSERT INTO fencerow.attempt (job_id, generation, attempt, lease_id, claimed_at, ended_at, kind, error)
    SELECT d.job_id, d.generation, d.attempt, d.lease_id, d.claimed_at, p_at, d.kind, d.error FROM judged AS d
  ), over AS (
    INSERT INTO fencerow.ended
      (job_id, lease_id, claimed_at, ended_at, generation, attempt, cancel_requested, outcome, error)
    SELECT d.job_id, d.lease_id, d.claimed_at, p_at, d.generation, d.attempt, d.cancel_requested, d.fate, d.error
    FROM judged AS d WHERE d.fate IN ('failed', 'cancelled')
  ), soon AS (
    INSERT INTO fencerow.ready (since, job_id, generation, priority, attempt, suspect, queue, key_until)
    SELECT p_at, d.job_id, d.generation, d.priority, d.charged, d.suspect, d.queue, d.key_until
    FROM judged AS d WHERE d.fate = 'back' AND d.delay <= '0 s'
  ), later AS (
    INSERT INTO fencerow.scheduled (run_at, job_id, generation, priority, attempt, suspect, queue, key_until)
    SELECT fencerow.later(p_at, d.delay), d.job_id, d.generation, d.priority, d.charged, d.suspect, d.queue, d.key_until
    FROM judged AS d WHERE d.fate = 'back' AND d.delay > '0 s'
  )
  SELECT array_agg(d.job_id), array_agg(d.generation),
         array_agg(CASE WHEN d.fate <> 'back' THEN d.fate WHEN d.delay > '0 s' THEN 'scheduled' ELSE 'ready' END),
         array_agg(d.job_id) FILTER (WHERE d.fate <> 'back' AND d.key_until = 'finished'),
         array_agg(d.queue) FILTER (WHERE d.fate = 'back')
  INTO v_jobs, v_generations, v_fates, v_freed, v_queues
  FROM judged AS d;

  IF v_freed IS NOT NULL THEN
    PERFORM fencerow.free_keys(v_freed);
  END IF;
  IF v_queues IS NOT NULL THEN
    PERFORM fencerow.wake(v_queues);
  END IF;
  RETURN QUERY SELECT u.job_id, u.generation, u.fate FROM unnest(v_jobs, v_generations, v_fates) AS u(job_id, generation, fate);
END
$body$;
