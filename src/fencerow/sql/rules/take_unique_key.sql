-- take_unique_key: the job that holds one key after this call: p_job when it was free, its time was over, or its holder
-- had not started and was replaced; else the holder. Against a running job replace and extend act as existing.
CREATE OR REPLACE FUNCTION fencerow.take_unique_key(
  p_key text, p_job bigint, p_until timestamptz, p_at timestamptz, p_conflict text, p_run_at timestamptz, p_batch bigint[]
) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
  v_holder bigint;
  v_until timestamptz;
  v_waits boolean;
BEGIN
  FOR v_look IN 1 .. 20 LOOP
    INSERT INTO fencerow.unique_key (key, job_id, until) VALUES (p_key, p_job, p_until) ON CONFLICT (key) DO NOTHING;
    IF FOUND THEN
      RETURN p_job;
    END IF;
    SELECT u.job_id, u.until INTO v_holder, v_until FROM fencerow.unique_key AS u WHERE u.key = p_key;
    CONTINUE WHEN NOT FOUND;
    v_waits := NOT v_holder = ANY (p_batch)
      AND EXISTS (SELECT FROM fencerow.jobs AS x WHERE x.id = v_holder AND x.state IN ('ready', 'scheduled'));
    IF v_until <= p_at OR (p_conflict = 'replace' AND v_waits
                           AND fencerow.cancel_ticket(v_holder, 'replaced by job ' || p_job)) THEN
      -- An update that comes second locks the winner's row before it finds that it does not match. Going back to the
      -- savepoint gives that lock up: kept until our commit, it would make the claim of the winner's job wait (I5).
      BEGIN
        UPDATE fencerow.unique_key AS u SET job_id = p_job, until = p_until
        WHERE u.key = p_key AND u.job_id = v_holder AND u.until IS NOT DISTINCT FROM v_until;
        IF NOT FOUND THEN
          RAISE EXCEPTION 'another took the key' USING ERRCODE = 'QF000';
        END IF;
        RETURN p_job;
      EXCEPTION WHEN SQLSTATE 'QF000' THEN
        CONTINUE;
      END;
    END IF;
    IF p_conflict = 'replace' AND v_waits OR p_conflict = 'extend' AND v_waits
       AND NOT fencerow.move_run_at(v_holder, p_run_at, p_at) THEN
      CONTINUE;
    END IF;
    RETURN v_holder;
  END LOOP;
  RAISE EXCEPTION 'a unique key changes hands too fast, try again' USING ERRCODE = '55P03';
END
$body$;
