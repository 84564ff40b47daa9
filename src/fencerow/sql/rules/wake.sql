-- wake: notify workers asleep on the queues of new tickets (one entry per ticket), at most one worker per ticket and
-- each by its own lease id, so that one job does not wake all. A hint: when it fails nothing else does, polling finds
-- the job.
CREATE OR REPLACE FUNCTION fencerow.wake(p_queues text[]) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
  v_channel text;
  v_sleeper record;
BEGIN
  IF NOT EXISTS (SELECT FROM fencerow.asleep AS a WHERE a.queue = ANY (p_queues)) THEN
    RETURN;
  END IF;
  v_channel := fencerow.channel();
  FOR v_sleeper IN
    SELECT DISTINCT chosen.lease_id
    FROM (SELECT u.queue, count(*) AS tickets FROM unnest(p_queues) AS u(queue) GROUP BY u.queue) AS wanted
    CROSS JOIN LATERAL (
      SELECT a.lease_id FROM fencerow.asleep AS a WHERE a.queue = wanted.queue ORDER BY random() LIMIT wanted.tickets
    ) AS chosen
  LOOP
    PERFORM pg_notify(v_channel, v_sleeper.lease_id::text);
  END LOOP;
EXCEPTION WHEN OTHERS THEN
  NULL;
END
$body$;
