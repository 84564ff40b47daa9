-- jobs: one row per job, never the payload; for single ids and reports. Lists page through job_page().
CREATE OR REPLACE VIEW fencerow.jobs AS
SELECT
  j.id,
  CASE
    WHEN e.job_id IS NOT NULL THEN e.outcome
    WHEN r.job_id IS NOT NULL THEN 'running'
    WHEN y.job_id IS NOT NULL THEN 'ready'
    WHEN s.job_id IS NOT NULL THEN 'scheduled'
  END AS state,
  j.task,
  j.queue,
  j.priority,
  coalesce(e.generation, r.generation, y.generation, s.generation) AS generation,
  coalesce(e.attempt, r.attempt, y.attempt, s.attempt) AS attempt,
  coalesce(j.max_attempts, t.max_attempts, 20) AS max_attempts,
  coalesce(j.on_lost, t.on_lost, 'retry') AS on_lost,
  CASE WHEN j.timeout IS NOT NULL OR t.name IS NOT NULL THEN coalesce(j.timeout, t.timeout) ELSE '1 h' END AS timeout,
  j.created_at,
  coalesce(s.run_at, j.run_at) AS run_at,
  y.since AS ready_since,
  coalesce(e.claimed_at, r.claimed_at) AS claimed_at,
  e.ended_at,
  coalesce(e.lease_id, r.lease_id) AS lease_id,
  r.until AS lease_until,
  r.worker,
  coalesce(e.cancel_requested, r.cancel_requested, false) AS cancel_requested,
  coalesce(y.suspect, r.suspect, s.suspect, false) AS suspect,
  r.progress,
  r.note,
  e.error,
  j.tags,
  j.idempotency_key,
  j.unique_key,
  j.parent_id
FROM fencerow.job AS j
LEFT JOIN fencerow.task AS t ON t.name = j.task
LEFT JOIN fencerow.ended AS e ON e.job_id = j.id
LEFT JOIN (
  SELECT x.job_id, x.lease_id, x.claimed_at, x.generation, x.attempt, x.cancel_requested, x.suspect, x.progress, x.note,
         l.until, l.worker
  FROM fencerow.lease AS l
  JOIN fencerow.running AS x ON x.lease_id = l.id
) AS r ON r.job_id = j.id
LEFT JOIN fencerow.ready AS y
  ON y.queue = j.queue AND y.suspect IN (false, true) AND y.priority = j.priority AND y.job_id = j.id
LEFT JOIN fencerow.scheduled AS s ON s.job_id = j.id;
