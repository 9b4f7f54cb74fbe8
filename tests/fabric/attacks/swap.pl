# Swaps the entry at a path in a tight loop: a folder of this user, a link to another folder, a
# FIFO, a file, nothing, and a folder and a link exchanged atomically (renameat2). The path's parent
# has the sticky bit; ITEMS is a folder of this user on the same file system.
use strict;
use POSIX qw(mkfifo);

my ($path, $target, $items) = @ARGV;
my $RENAMEAT2 = (POSIX::uname())[4] eq 'aarch64' ? 276 : 316;
my ($AT_FDCWD, $RENAME_EXCHANGE) = (-100, 2);
$SIG{PIPE} = 'DEFAULT';
symlink $target, "$items/link";
mkfifo "$items/fifo", 0666;
open(my $file, '>', "$items/file");
while (1) {
    rename "$items/folder", $path;
    syscall($RENAMEAT2, $AT_FDCWD, my $one = "$items/link", $AT_FDCWD, my $other = $path, $RENAME_EXCHANGE) for 1 .. 6;
    rename $path, "$items/folder";
    for my $item ('link', 'fifo', 'file') {
        rename "$items/$item", $path;
        rename $path, "$items/$item";
    }
}
