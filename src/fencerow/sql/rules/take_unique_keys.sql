-- take_unique_keys: give each unique key, in key order, to its new job, or find who holds it and do as on_conflict says.
-- A key row is changed only by whoever holds its job's ticket (or when its time is over), so no two callers deadlock:
-- tickets are waited for in key order here, and claims never wait.
CREATE OR REPLACE FUNCTION fencerow.take_unique_keys(
  p_at timestamptz, p_ids bigint[], p_new boolean[], p_keys text[], p_untils text[], p_fors interval[],
  p_conflicts text[], p_run_ats timestamptz[], p_run_ins interval[], OUT ids bigint[], OUT new boolean[]
)
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
  v_ask record;
  v_holder bigint;
BEGIN
  ids := p_ids;
  new := p_new;
  FOR v_ask IN
    SELECT u.place, u.job_id, u.key, coalesce(u.conflict, 'existing') AS conflict, coalesce(u.run_at, fencerow.later(p_at, u.run_in)) AS run_at,
           CASE WHEN u.until = 'time' THEN fencerow.later(p_at, u.held) END AS until, u.until = 'time' AND u.held IS NULL AS endless
    FROM unnest(p_ids, p_new, p_keys, p_untils, p_fors, p_conflicts, p_run_ats, p_run_ins) WITH ORDINALITY
      AS u(job_id, new, key, until, held, conflict, run_at, run_in, place)
    WHERE u.new AND u.key IS NOT NULL ORDER BY u.key, u.place
  LOOP
    IF v_ask.conflict NOT IN ('existing', 'replace', 'extend', 'raise') OR v_ask.endless THEN
      RAISE EXCEPTION 'on_conflict is existing, replace, extend or raise, and a key held for a time needs unique_for'
        USING ERRCODE = 'QF002';
    END IF;
    v_holder := fencerow.take_unique_key(v_ask.key, v_ask.job_id, v_ask.until, p_at, v_ask.conflict,
                                         v_ask.run_at, p_ids);
    IF v_holder <> v_ask.job_id THEN
      IF v_ask.conflict = 'raise' THEN
        RAISE EXCEPTION 'a unique key is held by job %', v_holder
          USING ERRCODE = 'QF005', DETAIL = v_holder::text, HINT = 'Wait for that job, or choose another on_conflict.';
      END IF;
      ids[v_ask.place] := v_holder;
      new[v_ask.place] := false;
    END IF;
  END LOOP;
END
$body$;
