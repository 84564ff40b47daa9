-- pause: stop claims of a queue; running jobs finish. Every claim that begins after this commits finds the pause.
CREATE OR REPLACE FUNCTION fencerow.pause(queue text, by text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '1s'
AS $body$
#variable_conflict use_column
DECLARE
  v_by text := left(coalesce(pause.by, session_user), 200);
BEGIN
  PERFORM fencerow.require_read_committed();
  INSERT INTO fencerow.queue AS q (name, paused_at, paused_by) VALUES (pause.queue, fencerow.now(), v_by)
  ON CONFLICT (name) DO UPDATE SET paused_at = excluded.paused_at, paused_by = excluded.paused_by WHERE q.paused_at IS NULL;
  IF FOUND THEN
    PERFORM fencerow.note_intervention('pause', NULL, pause.queue, v_by, NULL);
  END IF;
  RETURN FOUND;
END
$body$;
