-- open_lease: begin to hold jobs under a random id that the process chose before sending; sent again, it answers the same.
-- No row: the id is another worker's, or its lease is over.
CREATE OR REPLACE FUNCTION fencerow.open_lease(p_lease bigint, p_worker text, p_length interval, p_alone boolean DEFAULT false)
RETURNS TABLE (until timestamptz, seconds double precision)
LANGUAGE plpgsql VOLATILE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '1s'
AS $body$
#variable_conflict use_column
DECLARE
  v_at timestamptz := fencerow.now();
BEGIN
  PERFORM fencerow.require_read_committed();
  IF EXISTS (SELECT FROM fencerow.past_lease AS p WHERE p.id = p_lease) THEN
    RETURN;
  END IF;
  INSERT INTO fencerow.lease (id, until, length, alone, worker)
  VALUES (p_lease, fencerow.later(v_at, p_length), make_interval(secs => extract(epoch FROM p_length)::double precision),
          p_alone, p_worker) ON CONFLICT (id) DO NOTHING;
  RETURN QUERY
  SELECT l.until, extract(epoch FROM l.until - v_at)::double precision
  FROM fencerow.lease AS l WHERE l.id = p_lease AND l.worker = p_worker AND l.until > v_at;
END
$body$;
