-- resume: let a paused queue be claimed again, and wake whoever sleeps on it.
CREATE OR REPLACE FUNCTION fencerow.resume(queue text, by text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '1s'
AS $body$
#variable_conflict use_column
DECLARE
  v_found boolean;
BEGIN
  PERFORM fencerow.require_read_committed();
  UPDATE fencerow.queue AS q SET paused_at = NULL, paused_by = NULL
  WHERE q.name = resume.queue AND q.paused_at IS NOT NULL;
  v_found := FOUND;
  IF v_found THEN
    PERFORM fencerow.note_intervention('resume', NULL, resume.queue, left(coalesce(resume.by, session_user), 200), NULL);
    PERFORM fencerow.wake(ARRAY[resume.queue]);
  END IF;
  RETURN v_found;
END
$body$;
