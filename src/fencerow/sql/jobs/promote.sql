-- promote: scheduled -> ready
-- fence:   none: a scheduled ticket is nobody's
-- locks:   tickets FOR UPDATE SKIP LOCKED: waits for nothing
-- params:  p_limit tickets at most
-- returns: how many became ready
-- plan:    scheduled_run_at up to the clock, whatever lies ahead of it
CREATE OR REPLACE FUNCTION fencerow.promote(p_limit integer DEFAULT 1000) RETURNS bigint
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
DECLARE
  v_at timestamptz := fencerow.now();
  v_queues text[];
BEGIN
  PERFORM fencerow.require_read_committed();
  WITH due AS MATERIALIZED (
    SELECT s.ctid AS tid FROM fencerow.scheduled AS s
    WHERE s.run_at <= v_at ORDER BY s.run_at, s.job_id LIMIT p_limit FOR UPDATE OF s SKIP LOCKED
  ), moved AS (
    DELETE FROM fencerow.scheduled AS s USING due AS d WHERE s.ctid = d.tid
    RETURNING s.job_id, s.generation, s.priority, s.attempt, s.suspect, s.queue, s.key_until
  ), soon AS (
    INSERT INTO fencerow.ready (since, job_id, generation, priority, attempt, suspect, queue, key_until)
    SELECT v_at, m.job_id, m.generation, m.priority, m.attempt, m.suspect, m.queue, m.key_until FROM moved AS m
  )
  SELECT array_agg(m.queue) INTO v_queues FROM moved AS m;
  IF v_queues IS NOT NULL THEN
    PERFORM fencerow.wake(v_queues);
  END IF;
  RETURN coalesce(cardinality(v_queues), 0);
END
$body$;
