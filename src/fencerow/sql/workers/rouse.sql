-- rouse: this lease's process is awake on these queues and needs no NOTIFY for them.
CREATE OR REPLACE FUNCTION fencerow.rouse(p_lease bigint, p_queues text[]) RETURNS void
LANGUAGE sql VOLATILE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '1s'
AS $body$
  DELETE FROM fencerow.asleep AS a WHERE a.lease_id = p_lease AND a.queue = ANY (p_queues)
$body$;
