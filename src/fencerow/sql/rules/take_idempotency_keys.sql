-- take_idempotency_keys: the job of each key: a new one for a key first seen, else the one that has it. Inserting first
-- waits for an undecided transaction with the same key; the holder is read in the next statement, never guessed.
CREATE OR REPLACE FUNCTION fencerow.take_idempotency_keys(
  p_ids bigint[], p_tasks text[], p_payloads jsonb[], p_keys text[], OUT ids bigint[], OUT new boolean[]
)
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
  v_places text;
BEGIN
  INSERT INTO fencerow.idempotency_key (key, job_id)
  SELECT DISTINCT ON (u.key) u.key, u.job_id
  FROM unnest(p_ids, p_keys) WITH ORDINALITY AS u(job_id, key, place)
  WHERE u.key IS NOT NULL ORDER BY u.key, u.place
  ON CONFLICT (key) DO NOTHING;

  SELECT array_agg(coalesce(k.job_id, u.job_id) ORDER BY u.place),
         array_agg(u.key IS NULL OR k.job_id = u.job_id ORDER BY u.place)
  INTO ids, new
  FROM unnest(p_ids, p_keys) WITH ORDINALITY AS u(job_id, key, place)
  LEFT JOIN fencerow.idempotency_key AS k ON k.key = u.key;
  IF array_position(new, NULL) IS NOT NULL THEN
    RAISE EXCEPTION 'an idempotency key was purged in this moment, try again' USING ERRCODE = '55P03';
  END IF;

  SELECT string_agg((u.place - 1)::text, ', ' ORDER BY u.place) INTO v_places
  FROM unnest(ids, new, p_tasks, p_payloads) WITH ORDINALITY AS u(job_id, new, task, payload, place)
  LEFT JOIN unnest(p_ids, p_tasks, p_payloads) AS same(job_id, task, payload) ON same.job_id = u.job_id
  LEFT JOIN fencerow.job AS j ON j.id = u.job_id
  WHERE NOT u.new
    AND (coalesce(j.task, same.task), coalesce(j.payload, same.payload)) IS DISTINCT FROM (u.task, u.payload);
  IF v_places IS NOT NULL THEN
    RAISE EXCEPTION 'an idempotency key was used before with another task or payload'
      USING ERRCODE = 'QF004', DETAIL = v_places, HINT = 'Use a new key for new work, the same payload to ask again.';
  END IF;
END
$body$;
