# Runs FILE of memcached's own suite, from a directory with a `memcached-debug`, or with a server whose
# address is $T_MEMD_USE_DAEMON. A file that waits for an answer that does not come ends by the alarm.
alarm 300;
my $file = $0 = shift;
require MemcachedTest;
no warnings "redefine";
# memcached's debug build moves its clock by a command. Here a server at $CLOCK does.
*MemcachedTest::mem_move_time = sub {
    my $clock = IO::Socket::INET->new(PeerAddr => $ENV{CLOCK}) or die "no clock";
    print $clock "$_[1]\n";
    <$clock>;
};
# Servers get $PORTS, of which one may take connections before its memcached does: this waits for an answer.
if (my @ports = split " ", $ENV{PORTS} // "") {
    *MemcachedTest::free_port = sub { @ports > 1 ? shift @ports : $ports[0] };
    my $new = \&MemcachedTest::new_memcached;
    *MemcachedTest::new_memcached = sub {
        my $server = $new->(@_);
        my $request = ($_[0] // "") =~ /-B binary/ ? pack("CCx22", 0x80, 0x0b) : "version\r\n";
        my $socket = $server->new_sock;
        print $socket $request if $socket;
        $socket && sysread($socket, my $answer, 1) or die "Failed to connect: memcached does not answer\n";
        $server;
    };
}
do $file;
die $@ if $@;
