#!/bin/bash
# fabric.sh: prints the fabric for ibsim: three leaves with three nodes and one sink each, one spine,
# and the host of the subnet manager. The GUID of a port is one above that of its node.
leaf() { printf 'b8599f030000100%d' "$1"; }
SPINE=b8599f0300002000
ports=() # LEAF PORT NUMBER NAME
for l in 1 2 3; do
  for p in 1 2 3; do
    n=$((3 * (l - 1) + p))
    ports+=("$l $p $n n00$n")
  done
  ports+=("$l 4 $((9 + l)) sink$l")
done
ports+=("3 5 13 mgmt")
for row in "${ports[@]}"; do
  read -r l p n name <<< "$row"
  guid=$(printf '1070fd03000000%x0' "$n")
  printf 'vendid=0x2c9\ndevid=0x101b\nsysimgguid=0x%s\ncaguid=0x%s\nHca\t1 "H-%s"\t\t# "%s mlx5_0"\n' "$guid" "$guid" "$guid" "$name"
  printf '[1](0x%s1)\t"S-%s"[%s]\t\t# lid 0 lmc 0 "leaf%s" lid 0 4xHDR\n\n' "${guid%0}" "$(leaf "$l")" "$p" "$l"
done
for l in 1 2 3; do
  printf 'vendid=0x2c9\ndevid=0xd2f0\nsysimgguid=0x%s\nswitchguid=0x%s\nSwitch\t36 "S-%s"\t\t# "leaf%s" base port 0 lid 0 lmc 0\n' \
    "$(leaf "$l")" "$(leaf "$l")" "$(leaf "$l")" "$l"
  for row in "${ports[@]}"; do
    read -r of p n name <<< "$row"
    [ "$of" = "$l" ] || continue
    guid=$(printf '1070fd03000000%x' "$n")
    printf '[%s]\t"H-%s0"[1](%s1)\t\t# "%s mlx5_0" lid 0 4xHDR\n' "$p" "$guid" "$guid" "$name"
  done
  printf '[6]\t"S-%s"[%s]\t\t# "spine1" lid 0 4xHDR\n\n' $SPINE "$l"
done
printf 'vendid=0x2c9\ndevid=0xd2f0\nsysimgguid=0x%s\nswitchguid=0x%s\nSwitch\t36 "S-%s"\t\t# "spine1" base port 0 lid 0 lmc 0\n' $SPINE $SPINE $SPINE
for l in 1 2 3; do printf '[%s]\t"S-%s"[6]\t\t# "leaf%s" lid 0 4xHDR\n' "$l" "$(leaf "$l")" "$l"; done
