-- doze: say that this lease's process waits for a NOTIFY on these queues. It claims once more before it really sleeps,
-- so that a job enqueued in between is not missed.
CREATE OR REPLACE FUNCTION fencerow.doze(p_lease bigint, p_queues text[]) RETURNS void
LANGUAGE sql VOLATILE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '1s'
AS $body$
  INSERT INTO fencerow.asleep (queue, lease_id, since)
  SELECT DISTINCT u.queue, p_lease, fencerow.now() FROM unnest(p_queues) AS u(queue)
  ON CONFLICT (queue, lease_id) DO NOTHING
$body$;
