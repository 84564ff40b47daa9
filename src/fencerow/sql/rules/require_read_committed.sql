-- require_read_committed: every function that reads a ticket or a key begins with it (I15). Under a stricter level the
-- second look that decides ownership would see the first look's snapshot, and an ended lease would be accepted.
CREATE OR REPLACE FUNCTION fencerow.require_read_committed() RETURNS void
LANGUAGE plpgsql STABLE
AS $body$
BEGIN
  IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
    RAISE EXCEPTION 'this function decides ownership and needs READ COMMITTED, the transaction is %',
      upper(current_setting('transaction_isolation'))
      USING ERRCODE = 'QF001', HINT = 'Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
  END IF;
END
$body$;
