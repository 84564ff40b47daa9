-- retire: a worker process says that it stopped in good order.
CREATE OR REPLACE FUNCTION fencerow.retire(p_name text) RETURNS void
LANGUAGE sql VOLATILE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '1s'
AS $body$
  UPDATE fencerow.worker AS w SET stopped_at = fencerow.now() WHERE w.name = p_name AND w.stopped_at IS NULL
$body$;
