-- claim: ready -> running
-- fence:   raises the generation by one and charges the attempt; the ticket goes under p_lease, which must be alive
-- locks:   lease row FOR KEY SHARE SKIP LOCKED (shuts out expire and removal, not renewal), then tickets FOR UPDATE SKIP
--          LOCKED: never waits for a row
-- params:  p_lease, p_queue, p_limit rows at most; p_slots of them may be jobs that must not wait in a buffer (on_lost =
--          fail, one attempt, task in p_careful), NULL: all; p_priorities, p_after: watermarks (only job ids above,
--          priority by priority), NULL scans the queue from its start; p_alone: one suspect, under a lease for it alone
-- returns: the claims in order of priority and age; none when nothing is ready, the queue is paused or the lease is over
-- plan:    ready_pkey in order, then one tid probe and one job_pkey probe per row: independent of backlog and history
CREATE OR REPLACE FUNCTION fencerow.claim(
  p_lease bigint, p_queue text, p_limit integer, p_slots integer DEFAULT NULL,
  p_priorities smallint[] DEFAULT NULL, p_after bigint[] DEFAULT NULL,
  p_careful text[] DEFAULT NULL, p_alone boolean DEFAULT false
) RETURNS TABLE (
  job_id bigint, generation integer, attempt smallint, fence bigint, priority smallint, task text, payload text, extra jsonb
)
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
  v_until timestamptz;
  v_alone boolean;
  v_at timestamptz;
  v_timeline bigint;
  v_tids tid[];
  v_started bigint[];
  v_count bigint;
BEGIN
  PERFORM fencerow.require_read_committed();
  SELECT l.until, l.alone INTO v_until, v_alone
  FROM fencerow.lease AS l WHERE l.id = p_lease FOR KEY SHARE OF l SKIP LOCKED;
  v_at := fencerow.now();
  IF v_until IS NULL OR v_until <= v_at THEN
    RETURN;
  END IF;
  IF v_alone <> p_alone THEN
    RAISE EXCEPTION 'a lease opened for suspects claims suspects only, and no other lease does' USING ERRCODE = 'QF002';
  END IF;
  IF p_alone AND EXISTS (SELECT FROM fencerow.running AS r WHERE r.lease_id = p_lease)
     OR EXISTS (SELECT FROM fencerow.queue AS q WHERE q.name = p_queue AND q.paused_at IS NOT NULL) THEN
    RETURN;
  END IF;

  IF p_after IS NULL OR p_alone THEN
    SELECT array_agg(c.tid), array_agg(c.job_id) FILTER (WHERE c.key_until = 'started') INTO v_tids, v_started
    FROM (
      SELECT r.ctid AS tid, r.job_id, r.key_until
      FROM fencerow.ready AS r
      WHERE r.queue = p_queue AND r.suspect = p_alone
      ORDER BY r.priority, r.job_id
      LIMIT CASE WHEN p_alone THEN 1 ELSE p_limit END
      FOR UPDATE OF r SKIP LOCKED
    ) AS c;
  ELSE
    SELECT array_agg(c.tid), array_agg(c.job_id) FILTER (WHERE c.key_until = 'started') INTO v_tids, v_started
    FROM (
      SELECT above.tid, above.job_id, above.key_until
      FROM unnest(p_priorities, p_after) AS mark(priority, after)
      CROSS JOIN LATERAL (
        SELECT r.ctid AS tid, r.job_id, r.key_until
        FROM fencerow.ready AS r
        WHERE r.queue = p_queue AND r.suspect = false AND r.priority = mark.priority AND r.job_id > mark.after
        ORDER BY r.job_id
        LIMIT p_limit
        FOR UPDATE OF r SKIP LOCKED
      ) AS above
      LIMIT p_limit
    ) AS c;
  END IF;
  IF v_tids IS NULL THEN
    RETURN;
  END IF;

  v_timeline := fencerow.timeline() << 48;
  RETURN QUERY
  WITH taken AS (
    DELETE FROM fencerow.ready AS r
    USING unnest(v_tids) WITH ORDINALITY AS c(tid, place), fencerow.job AS j
    WHERE r.ctid = c.tid AND j.id = r.job_id
      AND (p_slots IS NULL OR c.place <= p_slots
           OR NOT (coalesce(j.on_lost = 'fail', false) OR coalesce(j.max_attempts = 1, false)
                   OR coalesce(j.task = ANY (p_careful), false)))
    RETURNING c.place, r.job_id, r.generation + 1 AS generation, (r.attempt + 1)::smallint AS attempt, r.priority, r.suspect,
              nullif(r.key_until, 'started') AS key_until, j.task, j.payload::text AS payload, fencerow.extra(j) AS extra
  ), held AS (
    INSERT INTO fencerow.running (lease_id, job_id, claimed_at, generation, attempt, suspect, key_until)
    SELECT p_lease, t.job_id, v_at, t.generation, t.attempt, t.suspect, t.key_until FROM taken AS t
  )
  SELECT t.job_id, t.generation, t.attempt, v_timeline + nextval('fencerow.fence'), t.priority, t.task, t.payload, t.extra
  FROM taken AS t ORDER BY t.place;
  GET DIAGNOSTICS v_count = ROW_COUNT;

  IF v_started IS NOT NULL THEN
    PERFORM fencerow.free_keys(ARRAY(
      SELECT r.job_id FROM fencerow.running AS r WHERE r.lease_id = p_lease AND r.job_id = ANY (v_started)));
  END IF;
  IF v_count = p_limit THEN
    PERFORM fencerow.wake(ARRAY[p_queue]);
  END IF;
END
$body$;
