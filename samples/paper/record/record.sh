#!/bin/bash
# record.sh LAB IBSCOPE [JOB ...]: the experiment, from the boot of the guests to the compared matrices.
#
# LAB is the folder that build.sh filled, IBSCOPE the program. Jobs: bt, ft; default both. The result of
# each job is in LAB/results/JOB. Needs root, and Debian 12 with qemu-system-x86, slurm-wlm, munge,
# ibsim-utils, libumad2sim0, opensm, infiniband-diags, openssh-server, iproute2, otf2-tools, python3.
#
# Everything runs in namespaces of its own, and ends when this script ends.
if [ ! "$IN_NAMESPACE" ]; then
  exec env IN_NAMESPACE=1 unshare --net --pid --mount --fork --kill-child=KILL --mount-proc bash "$0" "$@"
fi
set -eu
HERE=$(cd "$(dirname "$0")" && pwd)
IBSCOPE=$(realpath "$2")
cd "$1" && LAB=$PWD
shift 2
JOBS=${*:-bt ft}
NODES=(n001 n002 n003 n004 n005 n006 n007 n008 n009)
SINKS=(sink1 sink2 sink3)
PRELOAD=/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so
export PATH=/usr/sbin:/usr/bin:/sbin:/bin

step() { echo "[$(date +%T)] $*"; }
await() { # SECONDS WHAT COMMAND...
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    [ $SECONDS -lt $end ] || { echo "timeout: $what" >&2; exit 1; }
    sleep 0.5
  done
}

rm -rf run slots osm ssh slurm state runs captures hosts log results/new
mkdir -p run slots osm ssh slurm/{munge,state,spool,jobs} state runs captures hosts log results share/run
rm -rf share/jobs && mkdir -p share/jobs
rm -f sw/*.sock sw/*.wire
chmod 755 "$LAB" slurm slurm/munge
for line in 'link set lo up' 'link add ve0 type veth peer name ve1' 'addr add 10.99.0.1/24 dev ve0' 'link set ve0 up' \
  'link set ve1 up'; do ip $line; done

step guests
sw/vswitch sw 12 > log/vswitch 2>&1 &
await 10 vswitch test -S sw/control.sock
# Guests that calibrate the TSC on a busy host get a wrong clock.
tsc_khz=$(dmesg | awk '/tsc: Detected/ { for (i = 1; i < NF; i++) if ($i == "Detected") print $(i + 1) * 1000; exit }')
boot() {
  nice -n "${GUEST_NICE:-0}" qemu-system-x86_64 -name "n00$1" -M pc,vmport=off -nodefaults -no-user-config \
    -accel tcg,thread=single,tb-size=64 -cpu qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt,+rdrand -smp 1 -m 256 \
    -rtc base=utc,clock=host -display none -serial "file:log/console$1" \
    -kernel vmlinuz -initrd initrd.gz \
    -append "console=ttyS0 quiet no_timer_check mitigations=off nokaslr audit=0 selinux=0 apparmor=0 tsc=reliable tsc_early_khz=$tsc_khz net.ifnames=0 node=$1" \
    -drive if=none,id=d0,file=root.img,format=raw,snapshot=on,cache=unsafe -device virtio-blk-pci,drive=d0 \
    -fsdev local,id=f0,path=share,security_model=none -device virtio-9p-pci,fsdev=f0,mount_tag=lab \
    -netdev "stream,id=n0,server=off,addr.type=unix,addr.path=sw/port$1.sock" \
    -device "virtio-net-pci,netdev=n0,mac=52:54:00:00:00:0$1,csum=off,gso=off,host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ufo=off,mrg_rxbuf=on,romfile=" \
    -object rng-random,id=r0,filename=/dev/urandom -device virtio-rng-pci,rng=r0 > "log/qemu$1" 2>&1 &
}
for n in 1 2 3 4 5 6 7 8 9; do boot $n; done

step fabric
cat > bin/simulated << END
#!/bin/bash
# A tool of infiniband-diags on the simulated fabric. ibsim serves at most ten programs, and each needs a folder.
exec 9> "$LAB/slots/\$((RANDOM % 6))"
flock 9
folder=\$(mktemp -d $LAB/run/XXXXXX)
cd "\$folder" || exit 127
LD_PRELOAD=$PRELOAD SIM_HOST=\${SIM_HOST:-mgmt mlx5_0} /usr/sbin/\${0##*/} "\$@" > out 2> err 9>&-
code=\$?
cat out
cat err >&2
rm -rf "\$folder"
exit \$code
END
chmod +x bin/simulated
for tool in ibstat ibtracert ibnetdiscover; do ln -sf simulated bin/$tool; done
"$HERE/fabric.sh" > fabric.net
(cd run && exec ibsim -s -n "$LAB/fabric.net" < /dev/null > "$LAB/log/ibsim" 2>&1) &
await 10 ibsim grep -q 'simulator ready' log/ibsim
(cd run && exec env LD_PRELOAD=$PRELOAD SIM_HOST='mgmt mlx5_0' OSM_TMP_DIR="$LAB/osm" OSM_CACHE_DIR="$LAB/osm" \
  opensm -f "$LAB/log/opensm" > "$LAB/log/opensm.out" 2>&1 < /dev/null) &
active() { SIM_HOST='mgmt mlx5_0' bin/ibstat 2> /dev/null | grep -q 'State: Active'; }
await 60 'an active fabric' active

step ssh
mkdir -p /run/sshd
ssh-keygen -q -t ed25519 -N '' -f ssh/id
address() { case $1 in n*) echo "127.0.0.1$((10#${1#n}))" ;; sink*) echo "127.0.0.2${1#sink}" ;; esac; }
for node in "${NODES[@]}" "${SINKS[@]}"; do
  mkdir ssh/$node
  ssh-keygen -q -t ed25519 -N '' -f ssh/$node/key
  case $node in sink*) wire=sw/sink$((9 + ${node#sink})).wire ;; *) wire=none ;; esac
  cat > ssh/$node/config << END
Port 2222
ListenAddress $(address $node)
HostKey $LAB/ssh/$node/key
PidFile $LAB/ssh/$node/pid
AuthorizedKeysFile $LAB/ssh/id.pub
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
MaxStartups 100
Subsystem sftp internal-sftp
SetEnv SIM_HOST="$node mlx5_0" HOME=$LAB/ssh IBDUMP_WIRE=$LAB/$wire IBDUMP_LIDS=$LAB/lids
END
  /usr/sbin/sshd -f "$LAB/ssh/$node/config" -E "$LAB/log/sshd.$node"
  echo "[$(address $node)]:2222 $(cut -d' ' -f1,2 ssh/$node/key.pub)" >> ssh/known_hosts
done
# The stand-in for ibdump gives each packet the LIDs that opensm assigned to the ports of its nodes.
: > lids
for n in "${!NODES[@]}"; do
  lid=$(bin/ibnetdiscover -p 2> /dev/null | awk -v name="'${NODES[n]}" '$1 == "CA" && index($0, name) { print $2; exit }')
  echo "10.77.0.$((n + 1)) $lid" >> lids
done

step ibscope
cat > capture.toml << END
[ssh]
key = "$LAB/ssh/id"
known_hosts = "$LAB/ssh/known_hosts"
port = 2222
connect_timeout_s = 60
parallel = 4
[tools]
ibstat = "$LAB/bin/ibstat"
ibtracert = "$LAB/bin/ibtracert"
ibnetdiscover = "$LAB/bin/ibnetdiscover"
ibdump = "$LAB/bin/ibdump"
[fabric]
timeout_s = 60
[sinks]
nodes = ["sink1", "sink2", "sink3"]
required = true
[mirror]
backend = "command"
timeout_s = 60
[mirror.command]
on = ["$LAB/bin/mirror-port", "on", "--leaf", "{leaf_guid}", "--port", "{port}", "--to", "{sink_port}"]
off = ["$LAB/bin/mirror-port", "off", "--leaf", "{leaf_guid}", "--port", "{port}", "--to", "{sink_port}"]
check = ["$LAB/bin/mirror-port", "show", "--leaf", "{leaf_guid}", "--port", "{port}"]
check_on = "port {port} mirrored to {sink_port}"
check_off = "port {port} not mirrored"
[capture]
backend = "ibdump"
directory = "$LAB/captures"
ready_s = 30
stop_s = 60
[collect]
directory = "$LAB/runs"
fetch = true
delete_fetched = true
[run]
state_dir = "$LAB/state"
log = "$LAB/log/ibscope"
syslog = false
deadline_s = 250
fail_open = false
END
for node in "${NODES[@]}" "${SINKS[@]}"; do printf '[nodes.%s]\naddress = "%s"\n' $node "$(address $node)" >> capture.toml; done
chmod 600 capture.toml
cp "$IBSCOPE" bin/ibscope
printf 'SlurmUser=root\nPrologEpilogTimeout=300\n' > slurm/before.conf
bin/ibscope hook install --write --config "$LAB/capture.toml" --slurm-conf "$LAB/slurm/before.conf" --scripts "$LAB/slurm" > log/install
hooks=$(grep -oE '^ *(PrologSlurmctld|EpilogSlurmctld)=.*' log/install)

step Slurm
host=$(hostname -s)
cat > slurm/slurm.conf << END
ClusterName=paper
SlurmctldHost=$host(10.99.0.1)
SlurmctldPort=16817
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$LAB/slurm/munge/socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/linear
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmctldTimeout=600
SlurmdTimeout=600
InactiveLimit=0
MinJobAge=3600
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0
SlurmdParameters=config_overrides
StateSaveLocation=$LAB/slurm/state
SlurmdSpoolDir=$LAB/slurm/spool/%n
SlurmctldPidFile=$LAB/slurm/slurmctld.pid
SlurmdPidFile=$LAB/slurm/slurmd.%n.pid
SlurmctldLogFile=$LAB/log/slurmctld
SlurmdLogFile=$LAB/log/slurmd.%n
PrologFlags=Alloc
PrologEpilogTimeout=300
BatchStartTimeout=300
$hooks
NodeName=n[001-009] NodeHostname=$host NodeAddr=10.99.0.1 Port=[17001-17009] CPUs=1 RealMemory=100 State=UNKNOWN
PartitionName=ib Nodes=n[001-009] Default=YES State=UP OverSubscribe=EXCLUSIVE MaxTime=INFINITE
END
export SLURM_CONF=$LAB/slurm/slurm.conf
head -c 1024 /dev/urandom > slurm/munge/key && chmod 600 slurm/munge/key
munged --force --key-file="$LAB/slurm/munge/key" --socket="$LAB/slurm/munge/socket" --pid-file="$LAB/slurm/munge/pid" \
  --log-file="$LAB/log/munged" --seed-file="$LAB/slurm/munge/seed"
slurmctld -c < /dev/null >> log/slurmctld.up 2>&1
for node in "${NODES[@]}"; do
  mkdir slurm/spool/$node
  slurmd -N $node < /dev/null >> log/slurmd.up 2>&1
done
idle() { [ "$(timeout 10 sinfo -h -t idle -o %D)" = 9 ]; }
await 120 'nine idle nodes' idle

step 'guests are up'
booted() { [ "$(ls share/jobs/*/up 2> /dev/null | wc -l)" = 9 ]; }
await 900 'nine guests' booted
# Runs a script in a guest: in-guest NODE SECONDS < SCRIPT
cat > bin/in-guest << END
#!/bin/bash
job=$LAB/share/jobs/\$1/j\$(date +%s%N)
cat > \$job.tmp && mv \$job.tmp \$job.job
for ((i = 0; i < 2 * \$2; i++)); do [ -s \$job.rc ] && break; sleep 0.5; done
cat \$job.out
[ -s \$job.rc ] && exit "\$(cat \$job.rc)"
echo "timeout" && exit 124
END
chmod +x bin/in-guest
copy_programs() {
  local copies=() node pid
  for node in "${NODES[@]}"; do
    bin/in-guest $node 600 <<< 'rm -rf /opt/paper && cp -r /lab/opt /opt/paper' > "log/programs.$node" 2>&1 &
    copies+=($!)
  done
  for pid in "${copies[@]}"; do wait "$pid"; done
}

record() { # JOB PROGRAM RANKS
  local name=$1 program=$2 ranks=$3 id
  rm -rf "results/$name" "share/run/$name" && mkdir -p "results/$name" "share/run/$name/truth"
  # slurmd runs on the host, once per node name. The batch script starts mpirun in the guest of its first node.
  cat > "slurm/jobs/$name.sh" << END
#!/bin/bash
scontrol show hostnames "\$SLURM_JOB_NODELIST" > $LAB/share/run/$name/hostfile
exec $LAB/bin/in-guest "\$SLURMD_NODENAME" 1500 << 'JOB'
cd /lab/run/$name
timeout -k 5 1400 mpirun --allow-run-as-root --hostfile hostfile -np $ranks --map-by ppr:1:node --bind-to none \
  --display-map --mca oob_tcp_if_include eth0 --mca mpi_yield_when_idle 1 --mca pml ucx --mca btl ^openib,ofi \
  -x UCX_TLS=rc_v,self -x UCX_NET_DEVICES=rxe0:1 -x UCX_IB_GID_INDEX=1 -x UCX_UD_VERBS_ETH_DGID_CHECK=n \
  -x UCX_HANDLE_ERRORS=none -x TRUTH_DIR=/lab/run/$name/truth -x LD_LIBRARY_PATH=/opt/paper/scorep-lib \
  -x SCOREP_ENABLE_TRACING=true -x SCOREP_ENABLE_PROFILING=false -x SCOREP_TIMER=gettimeofday \
  -x SCOREP_EXPERIMENT_DIRECTORY=/lab/run/$name/trace -x SCOREP_TOTAL_MEMORY=16M ${MPIRUN:-} \
  /opt/paper/$program
JOB
END
  step "sbatch -N$ranks $name"
  id=$(sbatch --parsable -N"$ranks" --job-name="$name" --comment=ibscope=on --output="$LAB/share/run/$name/output.txt" "slurm/jobs/$name.sh")
  ended() { scontrol show job "$id" | grep -qE 'JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL)'; }
  await 2400 "the end of job $id" ended
  step "$(scontrol show job "$id" | grep -oE 'JobState=[A-Z]+|ExitCode=[0-9:]+|RunTime=[^ ]+' | tr '\n' ' ')"
  tail -25 "share/run/$name/output.txt"
  cp -r "share/run/$name/." "results/$name/"
  cp "slurm/jobs/$name.sh" "results/$name/job.sh"
  cp -r "$(ls -dt runs/*/ | head -1)" "results/$name/captures"
  cp fabric.net lids "results/$name/"
  bin/ibnetdiscover -p > "results/$name/ibnetdiscover.txt" 2> /dev/null
  grep "job $id:" log/ibscope > "results/$name/ibscope.log" || true
  ls -l "results/$name/captures"
}
copy_programs
for job in $JOBS; do
  case $job in
    bt) record bt bt.S.9 9 ;;
    ft) record ft ft.S.8 8 ;;
    wait) await 36000 'the file stop' test -e stop ;;
  esac
done
step done
