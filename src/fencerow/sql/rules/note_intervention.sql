-- note_intervention: who did what to a job or queue, kept for the audit.
CREATE OR REPLACE FUNCTION fencerow.note_intervention(p_verb text, p_job bigint, p_queue text, p_by text, p_note text) RETURNS void
LANGUAGE sql VOLATILE
AS $body$
  INSERT INTO fencerow.intervention (at, verb, job_id, queue, by, note)
  VALUES (fencerow.now(), p_verb, p_job, p_queue, p_by, left(p_note, 500))
$body$;
