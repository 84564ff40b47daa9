-- timeline: the WAL timeline now, the leading part of a fence: it rises with a promotion. Read from the insert position,
-- because pg_control_checkpoint() lags behind a promotion.
CREATE OR REPLACE FUNCTION fencerow.timeline() RETURNS bigint
LANGUAGE sql STABLE
AS $body$ SELECT ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint $body$;
