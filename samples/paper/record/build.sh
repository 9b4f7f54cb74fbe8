#!/bin/bash
# build.sh LAB SCOREP NPB: makes the guest image and the programs.
#
# LAB: a folder with 8 GB. SCOREP: the source of Score-P 8.4 with its dependencies in vendor/. NPB: the
# folder NPB3.3-MPI. Needs root and Debian 12 with debootstrap, qemu-system-x86, gcc and e2fsprogs.
# Each step is skipped if its result is there.
[ "$IN_NAMESPACE" ] || exec env IN_NAMESPACE=1 unshare --mount --propagation private bash "$0" "$@"
set -e
HERE=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" && cd "$1" && LAB=$PWD
SCOREP=$(realpath "$2") NPB=$(realpath "$3")
export DEBIAN_FRONTEND=noninteractive
step() { echo "[$(date +%T)] $*"; }
mkdir -p sw bin share/opt share/jobs

step stand-ins
gcc -O2 -o sw/vswitch "$HERE/vswitch.c"
gcc -O2 -o bin/ibdump "$HERE/ibdump.c"
cp "$HERE/mirror-port" bin/

step guest
sources=$(apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' | sort -u | grep ' bookworm')
if [ ! -e guest.ok ]; then
  rm -rf --one-file-system guest
  debootstrap --variant=minbase --include=ca-certificates,apt-utils bookworm guest \
    "$(awk '$3 == "bookworm" { print $2; exit }' <<< "$sources")" > debootstrap.log 2>&1
  touch guest.ok
fi
cp /etc/resolv.conf guest/etc/resolv.conf
echo "$sources" > guest/etc/apt/sources.list
printf 'APT::Install-Recommends "false";\nAPT::Sandbox::User "root";\n' > guest/etc/apt/apt.conf.d/99lab
mkdir -p guest/src/scorep guest/src/build scorep-build
for name in dev proc sys; do mount --bind /$name guest/$name; done
mount --bind "$SCOREP" guest/src/scorep
mount --bind scorep-build guest/src/build
if [ ! -e stage2.ok ]; then
  chroot guest sh -ec 'apt-get update -qq
    apt-get install -y -qq linux-image-amd64 openmpi-bin libopenmpi-dev gcc g++ gfortran make libc6-dev binutils-dev \
      libiberty-dev zlib1g-dev python3 busybox-static kmod util-linux iproute2 procps openssh-server openssh-client \
      rdma-core ibverbs-utils ibverbs-providers ucx-utils' > guest_apt.log 2>&1
  touch stage2.ok
fi

step Score-P
if [ ! -e scorep.ok ]; then
  # Equal times keep make from running autotools.
  find "$SCOREP" -exec touch -h -d 2026-01-01 {} +
  chroot guest sh -ec 'cd /src/build
    export CFLAGS="-O1 -g0" CXXFLAGS="-O0 -g0"
    /src/scorep/configure --prefix=/opt/scorep --with-nocross-compiler-suite=gcc --with-mpi=openmpi --without-shmem \
      --disable-gcc-plugin --enable-shared --disable-static --without-cuda --without-opencl --without-libunwind \
      --without-papi --without-pdt > configure.log 2>&1
    make -j"$(nproc)" > make.log 2>&1
    make install > install.log 2>&1'
  touch scorep.ok
fi

step programs
mkdir -p guest/opt/paper && cp "$HERE/truth.c" "$HERE/scorep_init.c" guest/opt/paper/
rm -rf guest/src/npb && cp -r "$NPB" guest/src/npb
cat > guest/src/npb/config/make.def << 'END'
MPIF77 = mpif90
FLINK = $(MPIF77)
# Calls go to truth.c first, which passes them to Score-P.
FMPI_LIB = /opt/paper/libtruth.so -Wl,-rpath,/opt/paper /opt/paper/scorep_init.o -L/opt/scorep/lib -Wl,--no-as-needed \
  -lscorep_adapter_mpi_event -lscorep_adapter_mpi_mgmt -lscorep_mpp_mpi -lscorep_constructor -lscorep_measurement \
  -lscorep_thread_mockup -lscorep_alloc_metric -lscorep_adapter_utils -lotf2 -lcube4w -Wl,-rpath-link,/opt/scorep/lib
FFLAGS = -O2 -std=legacy -fallow-argument-mismatch -fallow-invalid-boz -w
FLINKFLAGS = $(FFLAGS) -Wl,--export-dynamic
CC = gcc
BINDIR = ../bin
RAND = randi8
END
chroot guest env LD_LIBRARY_PATH=/opt/scorep/lib sh -ec 'cd /opt/paper
  mpicc -O2 -shared -fPIC -o libtruth.so truth.c
  gcc -O1 -fPIC -c scorep_init.c
  cd /src/npb && mkdir -p bin && make -s bt CLASS=S NPROCS=9 && make -s ft CLASS=S NPROCS=8' > npb.log 2>&1
rm -rf share/opt && mkdir -p share/opt/scorep-lib
cp guest/src/npb/bin/bt.S.9 guest/src/npb/bin/ft.S.8 guest/opt/paper/libtruth.so share/opt/
for name in scorep_adapter_mpi_event scorep_adapter_mpi_mgmt scorep_mpp_mpi scorep_constructor scorep_measurement \
  scorep_thread_mockup scorep_alloc_metric scorep_adapter_utils otf2 cube4w; do
  cp -a guest/opt/scorep/lib/lib$name.so* share/opt/scorep-lib/
done

step image
if [ ! -e root.img ]; then
  install -m755 "$HERE/guest-init" guest/guest-init
  chroot guest bash -ec 'ssh-keygen -A > /dev/null
    mkdir -p -m700 /root/.ssh
    [ -e /root/.ssh/id_ed25519 ] || ssh-keygen -q -t ed25519 -N "" -f /root/.ssh/id_ed25519
    cp /root/.ssh/id_ed25519.pub /root/.ssh/authorized_keys
    printf "UseDNS no\nUsePAM no\nPermitRootLogin yes\n" >> /etc/ssh/sshd_config
    sed -i "s/^root:[^:]*:/root:*:/" /etc/shadow'
  printf 'Host *\n StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n LogLevel ERROR\n' > guest/root/.ssh/config
  { echo 127.0.0.1 localhost; for n in 1 2 3 4 5 6 7 8 9; do echo "10.77.0.$n n00$n"; done; } > guest/etc/hosts
  kernel=$(ls guest/boot/vmlinuz-* | sed 's/.*vmlinuz-//')
  rm -rf initrd && mkdir -p initrd/{bin,mod,proc,sys,dev,new}
  cp guest/bin/busybox initrd/bin/ && ln -s busybox initrd/bin/sh
  for module in virtio_pci virtio_blk ext4; do chroot guest modprobe -S "$kernel" --show-depends $module; done |
    awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | grep -v crc32c-intel | while read -r file; do
      cp "guest$file" initrd/mod/
      basename "$file" >> initrd/mod/order
    done
  cat > initrd/init << 'END'
#!/bin/sh
/bin/busybox mount -t proc p /proc; /bin/busybox mount -t sysfs s /sys; /bin/busybox mount -t devtmpfs d /dev
for m in $(/bin/busybox cat /mod/order); do /bin/busybox insmod /mod/$m; done
i=0; while [ ! -e /dev/vda ] && [ $i -lt 300 ]; do /bin/busybox sleep 0.1; i=$((i+1)); done
/bin/busybox mount -t ext4 -o rw,noatime /dev/vda /new
/bin/busybox umount /proc /sys; /bin/busybox mount --move /dev /new/dev
exec /bin/busybox switch_root /new /guest-init
END
  chmod +x initrd/init
  (cd initrd && find . | ./bin/busybox cpio -o -H newc 2> /dev/null | gzip -1 > ../initrd.gz)
  cp "guest/boot/vmlinuz-$kernel" vmlinuz
  umount guest/src/build guest/src/scorep guest/sys guest/proc guest/dev
  rm -rf guest/var/cache/apt/archives/*.deb guest/src/npb
  truncate -s 4G root.tmp && mkfs.ext4 -q -F -d guest root.tmp && mv root.tmp root.img
fi
step done
