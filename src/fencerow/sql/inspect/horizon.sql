-- horizon: seconds until the next scheduled job is due and until the next lease ends (NULL: none ahead), and which of the
-- given queues hold suspects. For timers; it decides nothing.
CREATE OR REPLACE FUNCTION fencerow.horizon(
  p_queues text[], OUT next_run double precision, OUT next_end double precision, OUT suspects text[]
)
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $body$
DECLARE
  v_at timestamptz := fencerow.now();
BEGIN
  SELECT extract(epoch FROM s.run_at - v_at) INTO next_run FROM fencerow.scheduled AS s ORDER BY s.run_at LIMIT 1;
  SELECT extract(epoch FROM min(l.until) - v_at) INTO next_end FROM fencerow.lease AS l;
  suspects := ARRAY(
    SELECT u.queue FROM unnest(p_queues) AS u(queue)
    WHERE EXISTS (SELECT FROM fencerow.ready AS r WHERE r.queue = u.queue AND r.suspect = true)
      AND NOT EXISTS (SELECT FROM fencerow.queue AS q WHERE q.name = u.queue AND q.paused_at IS NOT NULL));
END
$body$;
