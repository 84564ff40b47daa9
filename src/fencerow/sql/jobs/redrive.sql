-- redrive: failed -> ready
-- fence:   none: a person decides; the generation stays, so a late write of an old attempt is still refused
-- locks:   the ended row FOR UPDATE, until commit; then the unique key, taken again
-- params:  job, by (who)
-- returns: 'ready' when the job was failed; else its state now, or 'unknown', and nothing has changed
-- plan:    ended_pkey, job_pkey, one probe each
CREATE OR REPLACE FUNCTION fencerow.redrive(job bigint, by text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql VOLATILE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '1s'
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $body$
#variable_conflict use_column
DECLARE
  v_at timestamptz := fencerow.now();
  v_generation integer;
  v_queue text;
  v_key text;
  v_until text;
  v_holder bigint;
BEGIN
  PERFORM fencerow.require_read_committed();
  DELETE FROM fencerow.ended AS e WHERE e.job_id = redrive.job AND e.outcome = 'failed' RETURNING e.generation INTO v_generation;
  IF NOT FOUND THEN
    RETURN coalesce((SELECT x.state FROM fencerow.jobs AS x WHERE x.id = redrive.job), 'unknown');
  END IF;
  SELECT j.queue, j.unique_key, nullif(j.unique_until, 'time') INTO v_queue, v_key, v_until
  FROM fencerow.job AS j WHERE j.id = redrive.job;
  IF v_key IS NOT NULL AND v_until IS NOT NULL THEN
    FOR v_look IN 1 .. 20 LOOP
      INSERT INTO fencerow.unique_key (key, job_id) VALUES (v_key, redrive.job) ON CONFLICT (key) DO NOTHING;
      SELECT u.job_id INTO v_holder FROM fencerow.unique_key AS u WHERE u.key = v_key;
      EXIT WHEN FOUND;
    END LOOP;
    IF v_holder IS NULL THEN
      RAISE EXCEPTION 'the unique key of job % changes hands too fast, try again', redrive.job USING ERRCODE = '55P03';
    ELSIF v_holder <> redrive.job THEN
      RAISE EXCEPTION 'job % cannot be redriven: job % holds its unique key', redrive.job, v_holder
        USING ERRCODE = 'QF005', DETAIL = v_holder::text;
    END IF;
  END IF;
  INSERT INTO fencerow.ready (since, job_id, generation, priority, attempt, queue, key_until)
  SELECT v_at, j.id, v_generation, j.priority, 0, j.queue, v_until FROM fencerow.job AS j WHERE j.id = redrive.job;
  PERFORM fencerow.note_intervention('redrive', redrive.job, NULL, left(coalesce(redrive.by, session_user), 200), NULL);
  PERFORM fencerow.wake(ARRAY[v_queue]);
  RETURN 'ready';
END
$body$;
