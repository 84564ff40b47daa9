-- stale: claims past the end of their lease that no sweep has taken yet, with what will become of them. Changes nothing.
CREATE OR REPLACE FUNCTION fencerow.stale() RETURNS TABLE (
  job_id bigint, generation integer, attempt smallint, task text, queue text, worker text, claim_age interval,
  over_since interval, policy text, fate text
)
LANGUAGE sql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
  SELECT r.job_id, r.generation, r.attempt, j.task, j.queue, l.worker, c.at - r.claimed_at, c.at - l.until,
         coalesce(j.on_lost, t.on_lost, 'retry'),
         fencerow.fate('lost', false, r.cancel_requested, r.attempt, coalesce(j.max_attempts, t.max_attempts, 20),
                       coalesce(j.on_lost, t.on_lost, 'retry'))
  FROM (SELECT fencerow.now() AS at) AS c
  CROSS JOIN fencerow.lease AS l
  JOIN fencerow.running AS r ON r.lease_id = l.id
  JOIN fencerow.job AS j ON j.id = r.job_id
  LEFT JOIN fencerow.task AS t ON t.name = j.task
  WHERE l.until <= c.at ORDER BY r.claimed_at, r.job_id
$body$;
