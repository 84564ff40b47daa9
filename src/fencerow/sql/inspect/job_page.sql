-- job_page: one page of jobs, newest first, walking one index from the cursor: by state its ticket table, else job. Filters
-- on queue and task are applied on the way; at most p_scan rows are looked at, and the last row's id is the next cursor.
-- Where none of them matches, one row without an id carries the cursor; no row at all: the walk is at its end.
CREATE OR REPLACE FUNCTION fencerow.job_page(
  p_state text DEFAULT NULL, p_queue text DEFAULT NULL, p_task text DEFAULT NULL,
  p_before bigint DEFAULT NULL, p_limit integer DEFAULT 50, p_scan integer DEFAULT 10000
) RETURNS TABLE (
  id bigint, state text, task text, queue text, priority smallint, generation integer, attempt smallint,
  max_attempts smallint, created_at timestamptz, run_at timestamptz, claimed_at timestamptz, ended_at timestamptz,
  lease_until timestamptz, worker text, cancel_requested boolean, error text, cursor bigint
)
LANGUAGE plpgsql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$
#variable_conflict use_column
DECLARE
  v_before bigint := coalesce(p_before, 9223372036854775807);
  v_ids bigint[];
  v_last bigint;
BEGIN
  WITH walked AS (
    (SELECT e.job_id FROM fencerow.ended AS e
     WHERE p_state = 'done' AND e.outcome = 'done' AND e.job_id < v_before ORDER BY e.job_id DESC LIMIT p_scan)
    UNION ALL
    (SELECT e.job_id FROM fencerow.ended AS e
     WHERE p_state IN ('failed', 'cancelled') AND e.outcome <> 'done' AND e.outcome = p_state AND e.job_id < v_before
     ORDER BY e.job_id DESC LIMIT p_scan)
    UNION ALL
    (SELECT r.job_id FROM fencerow.running AS r
     WHERE p_state = 'running' AND r.job_id < v_before ORDER BY r.job_id DESC LIMIT p_scan)
    UNION ALL
    (SELECT s.job_id FROM fencerow.scheduled AS s
     WHERE p_state = 'scheduled' AND s.job_id < v_before ORDER BY s.job_id DESC LIMIT p_scan)
    UNION ALL
    (SELECT y.job_id FROM fencerow.ready AS y
     WHERE p_state = 'ready' AND (p_queue IS NULL OR y.queue = p_queue) AND y.job_id < v_before
     ORDER BY y.job_id DESC LIMIT p_scan)
    UNION ALL
    (SELECT j.id FROM fencerow.job AS j WHERE p_state IS NULL AND j.id < v_before ORDER BY j.id DESC LIMIT p_scan)
  ), wanted AS (
    SELECT w.job_id FROM walked AS w JOIN fencerow.job AS j ON j.id = w.job_id
    WHERE (p_queue IS NULL OR j.queue = p_queue) AND (p_task IS NULL OR j.task = p_task)
    ORDER BY w.job_id DESC LIMIT p_limit
  )
  SELECT ARRAY(SELECT w.job_id FROM wanted AS w), (SELECT min(w.job_id) FROM walked AS w) INTO v_ids, v_last;
  IF cardinality(v_ids) = p_limit THEN
    v_last := v_ids[p_limit];
  END IF;
  RETURN QUERY
  SELECT x.id, x.state, x.task, x.queue, x.priority, x.generation, x.attempt, x.max_attempts::smallint, x.created_at, x.run_at,
         x.claimed_at, x.ended_at, x.lease_until, x.worker, x.cancel_requested, x.error, v_last
  FROM unnest(v_ids) AS given(job_id)
  JOIN fencerow.jobs AS x ON x.id = given.job_id
  ORDER BY x.id DESC;
  IF NOT FOUND AND v_last IS NOT NULL THEN
    cursor := v_last;
    RETURN NEXT;
  END IF;
END
$body$;
