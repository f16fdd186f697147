# After its variables: a database server on the disk, and clients on its socket.
# A line of JSON before and after what counts; the host reads its counters then.
export PATH="$programs:/usr/bin:/usr/sbin:/bin:/sbin"
umask 0
mkdir -p /data /run/db /tmp
umask 022
mount -t ext4 -o noatime /dev/vda /data || exit 1
as_owner() { setpriv --reuid="$owner" --regid="$owner" --clear-groups "$@"; }
as_owner postgres -D /data/cluster -k /run/db -c listen_addresses= \
    -c timezone=GMT -c log_timezone=GMT -c shared_buffers=32MB \
    -c max_connections=300 -c checkpoint_timeout=1h -c max_wal_size=4GB \
    -c autovacuum=off -c log_min_messages=fatal </dev/null >/dev/null 2>/run/db/log &
server=$!
until pg_isready -q -h /run/db; do
    kill -0 $server || { cat /run/db/log; exit 1; }
    sleep 0.1
done
bench() { pgbench -n -U postgres -h /run/db "$@" postgres 2>/run/db/errors; }
echo "CHECKPOINT;" >/run/db/checkpoint.sql
run=0
while [ $run -lt "$runs" ]; do
    echo "{\"next\":$run}"
    bench -f /run/db/checkpoint.sql -t 1 >/dev/null
    bench -c "$clients" -j 1 -T 1 >/dev/null
    echo "{\"begin\":$run}"
    bench -c "$clients" -j 1 -T "$seconds" >/run/db/out || cat /run/db/errors
    echo "{\"end\":$run}"
    sed -n -e 's/^number of transactions actually processed: \([0-9]*\).*/{"transactions":\1}/p' \
        -e 's/^latency average = \([0-9.]*\) ms.*/{"latency_ms":\1}/p' \
        -e 's/^tps = \([0-9.]*\) .*/{"tps":\1}/p' /run/db/out
    run=$((run + 1))
done
echo '{"done":true}'
kill -INT $server
wait $server
umount /data
sync
