-- cancel: scheduled | ready -> cancelled; running -> running with its cancel flag, which renewals carry to the handler
-- fence:   none: a person's or producer's wish, not a worker's claim
-- locks:   the ticket FOR UPDATE, until commit (waits at most lock_timeout: 55P03); then its unique key
-- params:  job, by (who), reason
-- returns: 'cancelled' ended now, 'requested' asked of its worker, else the state it ended in before, or 'unknown'
-- plan:    job_pkey, then one exact probe per ticket table
CREATE OR REPLACE FUNCTION fencerow.cancel(job bigint, by text DEFAULT NULL, reason text DEFAULT NULL) RETURNS text
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
  v_at timestamptz;
  v_by text := left(coalesce(cancel.by, session_user), 200);
  v_state text;
BEGIN
  PERFORM fencerow.require_read_committed();
  FOR v_look IN 1 .. 20 LOOP
    SELECT x.state INTO v_state FROM fencerow.jobs AS x WHERE x.id = cancel.job;
    IF v_state IS NULL THEN
      RETURN 'unknown';
    ELSIF v_state IN ('done', 'failed', 'cancelled') THEN
      RETURN v_state;
    ELSIF v_state = 'running' THEN
      UPDATE fencerow.running AS r SET cancel_requested = true
      FROM fencerow.lease AS l WHERE r.lease_id = l.id AND r.job_id = cancel.job;
      IF FOUND THEN
        PERFORM fencerow.note_intervention('cancel', cancel.job, NULL, v_by, reason);
        RETURN 'requested';
      END IF;
    ELSIF fencerow.cancel_ticket(cancel.job, coalesce(reason, 'cancelled by ' || v_by)) THEN
      PERFORM fencerow.note_intervention('cancel', cancel.job, NULL, v_by, reason);
      RETURN 'cancelled';
    END IF;
  END LOOP;
  RAISE EXCEPTION 'the ticket of job % moves too fast to be cancelled, try again', cancel.job USING ERRCODE = '55P03';
END
$body$;
