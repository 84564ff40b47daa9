-- move_run_at: give a job that has not started another time. False when its ticket had moved on.
CREATE OR REPLACE FUNCTION fencerow.move_run_at(p_job bigint, p_run_at timestamptz, p_at timestamptz) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
  v_moved boolean;
BEGIN
  WITH wanted AS (
    SELECT j.id, j.queue, j.priority FROM fencerow.job AS j WHERE j.id = p_job
  ), unready AS (
    DELETE FROM fencerow.ready AS r USING wanted AS w
    WHERE r.queue = w.queue AND r.suspect IN (false, true) AND r.priority = w.priority AND r.job_id = w.id
    RETURNING r.job_id, r.generation, r.priority, r.attempt, r.suspect, r.queue, r.key_until
  ), unscheduled AS (
    DELETE FROM fencerow.scheduled AS s WHERE s.job_id = p_job
    RETURNING s.job_id, s.generation, s.priority, s.attempt, s.suspect, s.queue, s.key_until
  ), moved AS (
    SELECT u.job_id, u.generation, u.priority, u.attempt, u.suspect, u.queue, u.key_until FROM unready AS u
    UNION ALL
    SELECT u.job_id, u.generation, u.priority, u.attempt, u.suspect, u.queue, u.key_until FROM unscheduled AS u
  ), soon AS (
    INSERT INTO fencerow.ready (since, job_id, generation, priority, attempt, suspect, queue, key_until)
    SELECT p_at, m.job_id, m.generation, m.priority, m.attempt, m.suspect, m.queue, m.key_until
    FROM moved AS m WHERE p_run_at IS NULL OR p_run_at <= p_at
  ), later AS (
    INSERT INTO fencerow.scheduled (run_at, job_id, generation, priority, attempt, suspect, queue, key_until)
    SELECT p_run_at, m.job_id, m.generation, m.priority, m.attempt, m.suspect, m.queue, m.key_until
    FROM moved AS m WHERE p_run_at > p_at
  )
  SELECT true INTO v_moved FROM moved AS m;
  RETURN coalesce(v_moved, false);
END
$body$;
