-- cancel_ticket: end a job that has not started. True when this call ended it; false when the ticket had moved on, and
-- the caller looks again. Waits for whoever holds the ticket, at most lock_timeout.
CREATE OR REPLACE FUNCTION fencerow.cancel_ticket(p_job bigint, p_reason text) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
  v_keyed boolean;
BEGIN
  WITH wanted AS (
    SELECT j.id, j.queue, j.priority FROM fencerow.job AS j WHERE j.id = p_job
  ), unready AS (
    DELETE FROM fencerow.ready AS r USING wanted AS w
    WHERE r.queue = w.queue AND r.suspect IN (false, true) AND r.priority = w.priority AND r.job_id = w.id
    RETURNING r.job_id, r.generation, r.attempt, r.key_until
  ), unscheduled AS (
    DELETE FROM fencerow.scheduled AS s WHERE s.job_id = p_job
    RETURNING s.job_id, s.generation, s.attempt, s.key_until
  ), gone AS (
    SELECT u.job_id, u.generation, u.attempt, u.key_until FROM unready AS u
    UNION ALL
    SELECT u.job_id, u.generation, u.attempt, u.key_until FROM unscheduled AS u
  ), over AS (
    INSERT INTO fencerow.ended (job_id, ended_at, generation, attempt, cancel_requested, outcome, error)
    SELECT g.job_id, fencerow.now(), g.generation, g.attempt, true, 'cancelled', left(p_reason, 8192) FROM gone AS g
  )
  SELECT g.key_until IS NOT NULL INTO v_keyed FROM gone AS g;
  IF v_keyed THEN
    PERFORM fencerow.free_keys(ARRAY[p_job]);
  END IF;
  RETURN v_keyed IS NOT NULL;
END
$body$;
