-- hold: how every fenced write begins. Locks the tickets in job order (it may wait here), then, with a fresh snapshot,
-- reads clock and lease. tids[i] stays NULL where input i is not held: no such ticket, lease over, or a duplicate.
-- A single statement would compare the lease of before the wait with the clock of after it, or the reverse.
CREATE OR REPLACE FUNCTION fencerow.hold(p_lease bigint, p_jobs bigint[], p_generations bigint[]) RETURNS fencerow.grip
LANGUAGE plpgsql VOLATILE
AS $body$
DECLARE
  v_grip fencerow.grip;
BEGIN
  PERFORM fencerow.require_read_committed();
  IF cardinality(p_jobs) IS DISTINCT FROM cardinality(p_generations) THEN
    RAISE EXCEPTION 'jobs and generations differ in length' USING ERRCODE = 'QF002';
  END IF;

  SELECT array_agg(locked.tid ORDER BY locked.place) INTO v_grip.tids
  FROM (
    SELECT asked.place, mine.tid
    FROM (
      SELECT u.job_id, u.generation, u.place,
             lag(u.job_id) OVER same = u.job_id AND lag(u.generation) OVER same = u.generation AS again
      FROM unnest(p_jobs, p_generations) WITH ORDINALITY AS u(job_id, generation, place)
      WINDOW same AS (ORDER BY u.job_id, u.generation, u.place)
      ORDER BY u.job_id, u.generation, u.place
    ) AS asked
    LEFT JOIN LATERAL (
      SELECT r.ctid AS tid
      FROM fencerow.running AS r
      WHERE r.lease_id = p_lease AND r.job_id = asked.job_id AND r.generation = asked.generation
        AND asked.again IS NOT TRUE
      FOR UPDATE
    ) AS mine ON true
  ) AS locked;

  SELECT l.until INTO v_grip.until FROM fencerow.lease AS l WHERE l.id = p_lease;
  v_grip.at := fencerow.now();
  IF v_grip.until IS NULL OR v_grip.until <= v_grip.at THEN
    v_grip.tids := array_fill(NULL::tid, ARRAY[cardinality(p_jobs)]);
  END IF;
  RETURN v_grip;
END
$body$;
