# Run by the owner of captures. As soon as a run folder belongs to the owner, every name in it, and
# every name that root may write next, becomes a link to a file of root, a hard link to it, a FIFO,
# or a script that records who runs it.
use strict;
use POSIX qw(mkfifo);

my ($runs, $secret, $loot) = @ARGV;
sub script {
    my ($path) = @_;
    open(my $file, '>', $path) or return;
    print $file "#!/bin/sh\nid -u >>$loot/ran\n";
    close $file;
    chmod 0755, $path;
}
while (1) {
    for my $folder (glob "$runs/*") {
        next unless (stat $folder)[4] == $< && opendir(my $open, $folder);
        my %names = map { $_ => 1 } grep { !/^\.\.?$|^\.trap$/ } readdir $open;
        $names{"$_.part"} = 1 for grep { /pcap$/ } keys %names;
        $names{$_} = 1 for 'analyze.sh', 'job.ibp', 'analyze.log', 'manifest.json';
        open(my $note, '>>', "$loot/followed");
        print $note "$folder\n";
        for my $name (keys %names) {
            for my $kind (0 .. 3) {
                my $trap = "$folder/.trap";
                unlink $trap;
                symlink $secret, $trap if $kind == 0;
                link $secret, $trap if $kind == 1;
                mkfifo $trap, 0600 if $kind == 2;
                script($trap) if $kind == 3;
                rename $trap, "$folder/$name";
            }
            for (1 .. 20) {
                unlink "$folder/$name";
                link $secret, "$folder/$name";
            }
            unlink "$folder/$name" if rand() < 0.5;
        }
    }
    select undef, undef, undef, 0.0005;
}
