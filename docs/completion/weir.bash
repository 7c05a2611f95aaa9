# SPDX-License-Identifier: Apache-2.0
# bash completion for weir

_weir_files() {
	compopt -o filenames 2>/dev/null
	mapfile -t COMPREPLY < <(compgen -f -- "$1")
}

_weir_dirs() {
	compopt -o filenames 2>/dev/null
	mapfile -t COMPREPLY < <(compgen -d -- "$1")
}

# $1 the word, $2 the one before, $3 where "policy" stands
_weir_policy() {
	local sub=${COMP_WORDS[$3 + 1]} words='' shipped='snippet tool-call web-client-allowlist monitor-only'

	case $2 in
	--to)
		mapfile -t COMPREPLY < <(compgen -W 'tcp:// udp:// udplite:// sctp:// dccp:// icmp:// icmpv6://' -- "$1")
		return
		;;
	--with)
		mapfile -t COMPREPLY < <(compgen -W 'packet ipv4_options routing_header fragment' -- "$1")
		return
		;;
	--format)
		mapfile -t COMPREPLY < <(compgen -W oci-seccomp -- "$1")
		return
		;;
	--host | --resolver) return ;;
	esac
	if ((COMP_CWORD == $3 + 1)); then
		mapfile -t COMPREPLY < <(compgen -W 'check explain diff sets export --help' -- "$1")
		return
	fi
	case $sub in
	check) words='--json --host --resolver --help --usage' ;;
	explain) words='--to --with --batch --json --host --resolver --help --usage' ;;
	diff) words='--json --all --host --resolver --help --usage' ;;
	sets) words='--json --host --resolver --help --usage' ;;
	export) words='--format --help --usage' ;;
	esac
	if [[ $sub == sets || $1 == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$1")
	else
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -W "$shipped" -- "$1"; compgen -f -- "$1")
	fi
}

# $1 the word, $2 the one before, $3 where "exec" stands: options of ours, then a command with its own
_weir_exec() {
	local i shipped='snippet tool-call web-client-allowlist monitor-only'

	for ((i = $3 + 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		--policy | --user | --keep-caps | --json | --state-dir)
			[[ ${COMP_WORDS[i + 1]} == = ]] && ((i++))
			((i++))
			;;
		--)
			((i++))
			break
			;;
		-*) ;;
		*) break ;;
		esac
	done
	if ((i < COMP_CWORD)) && declare -F _command_offset >/dev/null; then
		_command_offset "$i"
		return
	elif ((i < COMP_CWORD)); then
		_weir_files "$1"
		return
	elif [[ ${COMP_WORDS[COMP_CWORD - 1]} == -- ]]; then
		mapfile -t COMPREPLY < <(compgen -c -- "$1")
		return
	fi
	case $2 in
	--policy)
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -W "$shipped" -- "$1"; compgen -f -- "$1")
		;;
	--user) mapfile -t COMPREPLY < <(compgen -u -- "$1") ;;
	--keep-caps) mapfile -t COMPREPLY < <(compgen -W 'net_bind_service net_raw net_broadcast ipc_lock sys_nice sys_time' -- "$1") ;;
	--json) _weir_files "$1" ;;
	--state-dir) _weir_dirs "$1" ;;
	*)
		if [[ $1 == -* ]]; then
			mapfile -t COMPREPLY < <(compgen -W '--policy --user --keep-caps --json --state-dir --quiet --help --usage --' -- "$1")
		else
			mapfile -t COMPREPLY < <(compgen -c -- "$1")
		fi
		;;
	esac
}

# $1 the word, $2 the one before, $3 where "token" stands
_weir_token() {
	local i sub='' words=''

	for ((i = $3 + 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		mint | ls | revoke)
			sub=${COMP_WORDS[i]}
			break
			;;
		esac
	done
	case $2 in
	--scope)
		mapfile -t COMPREPLY < <(compgen -W 'project agent operator reviewer' -- "$1")
		return
		;;
	--expires)
		mapfile -t COMPREPLY < <(compgen -W '12h 30d 90d never' -- "$1")
		return
		;;
	--config)
		_weir_files "$1"
		return
		;;
	--project | --agent | --note) return ;;
	esac
	case $sub in
	'') words='mint ls revoke --help --usage' ;;
	mint) words='--project --scope --agent --expires --note --state-dir --config --json --help --usage' ;;
	ls) words='--project --state-dir --config --json --help --usage' ;;
	revoke)
		words='--state-dir --config --help --usage'
		# Ids can be completed by who may read the table.
		[[ $1 == -* ]] || words=$("${COMP_WORDS[0]}" token ls 2>/dev/null | awk '$0 ~ / active / {print $1}')
		;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$1")
}

# Names of images can be completed by who may read the table; $1 the word.
_weir_images() {
	mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" image ls 2>/dev/null | awk 'NR > 1 {print $1}' | tr , '\n')" -- "$1")
}

# $1 the word, $2 the one before, $3 where "image" stands
_weir_image() {
	local i sub='' words=''

	for ((i = $3 + 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		import | ls | rm)
			sub=${COMP_WORDS[i]}
			break
			;;
		esac
	done
	case $2 in
	--config)
		_weir_files "$1"
		return
		;;
	--name) return ;;
	esac
	case $sub:$1 in
	import:[!-]* | import:)
		_weir_files "$1"
		return
		;;
	rm:[!-]* | rm:)
		_weir_images "$1"
		return
		;;
	:*) words='import ls rm --help --usage' ;;
	import:*) words='--name --json --state-dir --config --help --usage' ;;
	*) words='--json --state-dir --config --help --usage' ;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$1")
}

# $1 the word, $2 the one before, $3 where "agent" stands
_weir_agent() {
	local i sub='' words=''

	for ((i = $3 + 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		add | ls | rm | env)
			sub=${COMP_WORDS[i]}
			break
			;;
		esac
	done
	case $2 in
	--image)
		_weir_images "$1"
		return
		;;
	--expires)
		mapfile -t COMPREPLY < <(compgen -W '12h 30d 90d never' -- "$1")
		return
		;;
	--url)
		mapfile -t COMPREPLY < <(compgen -W 'http:// https:// unix:/' -- "$1")
		return
		;;
	--config)
		_weir_files "$1"
		return
		;;
	--project | --tools | --env) return ;;
	esac
	case $sub in
	'') words='add ls rm env --help --usage' ;;
	add) words='--project --image --tools --env --replace --json --state-dir --config --help --usage' ;;
	ls) words='--project --json --state-dir --config --help --usage' ;;
	rm) words='--project --state-dir --config --help --usage' ;;
	env) words='--project --url --expires --rotate --dotenv --json --state-dir --config --help --usage' ;;
	esac
	if [[ ($sub == rm || $sub == env) && $1 != -* ]]; then
		words=$("${COMP_WORDS[0]}" agent ls 2>/dev/null | awk 'NR > 1 {print $1}')
	fi
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$1")
}

# Ids of attachments can be completed by who may read them; $1 the word.
_weir_attached() {
	mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" status 2>/dev/null | awk '$1 ~ /^attached-[a-z0-9]*$/ {print $1}')" -- "$1")
}

# attach, detach and status; $1 the word, $2 the one before, $3 the command
_weir_attach() {
	local words='' shipped='snippet tool-call web-client-allowlist monitor-only'

	case $2 in
	--policy)
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -W "$shipped" -- "$1"; compgen -f -- "$1")
		return
		;;
	--cgroup | --parent)
		_weir_dirs "$1"
		return
		;;
	--id)
		_weir_attached "$1"
		return
		;;
	--pid)
		mapfile -t COMPREPLY < <(compgen -W self -- "$1")
		return
		;;
	--unknown)
		mapfile -t COMPREPLY < <(compgen -W 'deny allow' -- "$1")
		return
		;;
	--container)
		mapfile -t COMPREPLY < <(compgen -W "$(podman ps -q 2>/dev/null; crictl ps -q 2>/dev/null; docker ps -q 2>/dev/null)" -- "$1")
		return
		;;
	--pod | --resolver) return ;;
	esac
	case $3 in
	attach) words='--policy --cgroup --pid --container --pod --parent --unknown --resolver --force --require-full --json --help --usage' ;;
	detach) words='--cgroup --pid --container --pod --parent --id --all --json --help --usage' ;;
	status)
		if [[ $1 != -* ]]; then
			_weir_attached "$1"
			return
		fi
		words='--json --watch --help --usage'
		;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$1")
}

# Ids of runs can be completed by who may read the record; $1 the word.
_weir_runs() {
	mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" audit ls 2>/dev/null | awk 'NR > 1 {print $1}')" -- "$1")
}

# $1 the word, $2 the one before, $3 where "audit" stands
_weir_audit() {
	local i sub='' words=''

	for ((i = $3 + 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		ls | show | verify | export | report)
			sub=${COMP_WORDS[i]}
			break
			;;
		esac
	done
	case $2 in
	--verdict)
		mapfile -t COMPREPLY < <(compgen -W 'denied allowed would_deny' -- "$1")
		return
		;;
	--end)
		mapfile -t COMPREPLY < <(compgen -W 'exit signal timeout memory output cancelled broken' -- "$1")
		return
		;;
	--format)
		mapfile -t COMPREPLY < <(compgen -W 'ndjson ocsf' -- "$1")
		return
		;;
	--since | --until)
		mapfile -t COMPREPLY < <(compgen -W '1h 24h 7d 30d' -- "$1")
		return
		;;
	--state-dir | -d)
		_weir_dirs "$1"
		return
		;;
	--config | --public-key | --output | -o)
		_weir_files "$1"
		return
		;;
	--limit | -n | --project | --policy | --destination | --expect) return ;;
	esac
	local filters='--since --until --project --policy --destination --verdict --end'
	case $sub:$1 in
	show:-*) words='--json' ;;
	show:[!-]* | show: | report:[!-]* | report:)
		_weir_runs "$1"
		return
		;;
	:*) words='ls show verify export report' ;;
	ls:*) words="--json --limit $filters" ;;
	verify:*) words='--json --since --expect --public-key' ;;
	export:*) words="--format --output $filters" ;;
	report:*) words='--output --since --until --project --limit' ;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$words --state-dir --config --help --usage" -- "$1")
}

# $1 the word, $2 the one before
_weir_oci_hook() {
	case $2 in
	--policy) _weir_files "$1" ;;
	--policies) _weir_dirs "$1" ;;
	--unlabelled) mapfile -t COMPREPLY < <(compgen -W skip -- "$1") ;;
	--resolver) ;;
	*) mapfile -t COMPREPLY < <(compgen -W 'create stop --policy --policies --resolver --unlabelled --help --usage' -- "$1") ;;
	esac
}

_weir() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command='' words='' i

	COMPREPLY=()
	# "--option=VALUE" arrives as three words.
	if [[ $cur == = ]]; then
		cur=''
	elif [[ $prev == = ]]; then
		prev=${COMP_WORDS[COMP_CWORD - 2]}
	fi
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		serve | run | exec | attach | detach | status | oci-hook | audit | policy | image | agent | token | doctor | uninstall)
			command=${COMP_WORDS[i]}
			break
			;;
		esac
	done
	if [[ $command == exec ]]; then
		_weir_exec "$cur" "$prev" "$i"
		return
	fi
	if [[ $command == audit ]]; then
		_weir_audit "$cur" "$prev" "$i"
		return
	fi
	case $command in
	attach | detach | status)
		_weir_attach "$cur" "$prev" "$command"
		return
		;;
	oci-hook)
		_weir_oci_hook "$cur" "$prev"
		return
		;;
	esac
	case $command:$prev in
	serve:--python | run:--python | doctor:--python | doctor:-p | *:--config | doctor:-c | serve:--tls-cert | serve:--tls-key | run:--file | run:--stdin)
		_weir_files "$cur"
		return
		;;
	serve:--policy | serve:--tool-policy | run:--policy)
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -W 'snippet tool-call web-client-allowlist monitor-only' -- "$cur"; compgen -f -- "$cur")
		return
		;;
	*:--state-dir | serve:--image | run:--image | uninstall:-s)
		_weir_dirs "$cur"
		return
		;;
	serve:--listen)
		mapfile -t COMPREPLY < <(compgen -W '127.0.0.1:8380 unix:' -- "$cur")
		return
		;;
	serve:--dev-token | serve:--pool | run:--timeout | run:--env | run:-c | run:--code)
		return
		;;
	esac
	if [[ $command == token ]]; then
		_weir_token "$cur" "$prev" "$i"
		return
	fi
	if [[ $command == image ]]; then
		_weir_image "$cur" "$prev" "$i"
		return
	fi
	if [[ $command == agent ]]; then
		_weir_agent "$cur" "$prev" "$i"
		return
	fi
	if [[ $command == policy ]]; then
		_weir_policy "$cur" "$prev" "$i"
		return
	fi
	case $command in
	'') words='serve run exec attach detach status oci-hook audit policy image agent token doctor uninstall help --help --version' ;;
	serve) words='--policy-only --config --check-config --json --listen --state-dir --dev-token --policy --python --image --pool --tool-policy --no-internet-egress --tls-cert --tls-key --plaintext --audit-keep-days --audit-max-mib --audit-project-mib --audit-content --metrics-bpf-run-time --help --usage' ;;
	run) words='-c --code --file --stdin --env --timeout --policy --python --image --config --json --state-dir --help --usage' ;;
	doctor) words='--json --python --config --help --usage' ;;
	uninstall) words='--keep-state --state-dir --config --help --usage' ;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
	if [[ $command == run && $cur != -* ]]; then
		_weir_files "$cur"
	fi
}

complete -F _weir weir
