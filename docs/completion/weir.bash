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
		serve | run | audit | doctor | uninstall)
			command=${COMP_WORDS[i]}
			break
			;;
		esac
	done
	case $command:$prev in
	serve:--policy | serve:--python | run:--policy | run:--python | doctor:--python | doctor:-p)
		_weir_files "$cur"
		return
		;;
	*:--state-dir | audit:-d | uninstall:-s)
		_weir_dirs "$cur"
		return
		;;
	serve:--listen)
		mapfile -t COMPREPLY < <(compgen -W '127.0.0.1:8380 unix:' -- "$cur")
		return
		;;
	serve:--dev-token | serve:--pool | run:--timeout | run:-c | run:--code | audit:-n | audit:--limit)
		return
		;;
	esac
	case $command in
	'') words='serve run audit doctor uninstall help --help --version' ;;
	serve) words='--listen --state-dir --dev-token --policy --python --pool --plaintext --help --usage' ;;
	run) words='-c --code --timeout --policy --python --json --state-dir --help --usage' ;;
	audit) words='ls show --state-dir --json --limit --help --usage' ;;
	doctor) words='--json --python --help --usage' ;;
	uninstall) words='--keep-state --state-dir --help --usage' ;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
	if [[ $command == run && $cur != -* ]]; then
		_weir_files "$cur"
	fi
}

complete -F _weir weir
