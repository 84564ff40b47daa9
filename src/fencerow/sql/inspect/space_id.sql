-- space_id: the identity of this space; job.idempotency_key begins with it, because bare job ids repeat across databases.
CREATE OR REPLACE FUNCTION fencerow.space_id() RETURNS uuid
LANGUAGE sql STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $body$ SELECT s.id FROM fencerow.space AS s $body$;
