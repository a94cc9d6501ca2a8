"""The rules of the undo log, each with a mutant: a piece of source text and what stands in its place. A test must notice.

``by`` says which one: a random program of one rank (:class:`One`) or of two (:class:`Two`), run in milliseconds; or a test
by its name below ``tests/unit/ckpt/undo``, run in a new interpreter that imports the mutant.

When code with a rule in it moves, the mutant fails with "found 0 times": put it where the rule is now, and see that it is
still caught.
"""

from __future__ import annotations

from typing import NamedTuple


class One(NamedTuple):
    """A sequence of :func:`~tests.unit.ckpt.undo.test_sequences.check`."""

    seed: int


class Two(NamedTuple):
    """A sequence of :func:`~tests.unit.ckpt.undo.test_sequences.check_two_ranks`."""

    seed: int


class Mutant(NamedTuple):
    """``module``: below :mod:`ckpt.undo`."""

    rule: str
    module: str
    old: str
    new: str
    by: One | Two | str


OLD_NAME = "test_sequences.py::test_a_new_directory_with_an_old_name_is_another_directory"
RESTORING = "restart/test_restoring.py::"
BEFORE_IMAGES = "restart/test_before_images.py::"
LOADING = "restart/test_provisional.py::"

MUTANTS = [
    # what is recorded
    Mutant(
        "where two ranks compete for a file, a link is one to the file that the record names",
        "keeping",
        "            raise _Rebound(status)\n\n",
        "\n\n",
        "test_two_ranks.py::test_two_ranks_compete_for_one_file",
    ),
    Mutant(
        "where two ranks compete for a file, the later one's record comes later",
        "recorder",
        "kept=link, time_ns=now_ns)",
        "kept=link)",
        "test_two_ranks.py::test_two_ranks_compete_for_one_file",
    ),
    Mutant(
        "a file that is renamed to a new directory is looked at when it is opened there",
        "recorder",
        "self._mix(operation.target, path)",
        "pass",
        "test_fast_path.py::test_an_old_file_that_comes_to_a_new_directory_is_kept_before_it_is_changed",
    ),
    Mutant(
        "so is a file that is linked to a new directory",
        "recorder",
        "self._mix(path, operation.target)",
        "pass",
        "test_fast_path.py::test_an_old_file_that_comes_to_a_new_directory_is_kept_before_it_is_changed",
    ),
    Mutant(
        "contents are copied before they are changed",
        "recorder",
        "copies = not appends and binding.nbytes > 0",
        "copies = False",
        One(1),
    ),
    Mutant(
        "of a file that is appended to, the length is enough",
        "recorder",
        "copies = not appends and binding.nbytes > 0",
        "copies = binding.nbytes > 0",
        "test_rules.py::test_a_file_that_is_appended_to_is_not_copied",
    ),
    Mutant(
        "a file that is appended to and then changed otherwise is copied, too",
        "recorder",
        'if is_complete or (is_complete is False and operation.kind != "rewrite"):',
        "if is_complete is not None:",
        One(40),
    ),
    Mutant(
        "of copies of several ranks, the one that was whole first has nothing of what came later",
        "restart.plan",
        "return 0 < record.copied_ns < other.copied_ns",
        "return False",
        "test_two_ranks.py::test_a_file_is_what_it_was_before_any_rank_changed_it",
    ),
    Mutant(
        "only the first change of a file is recorded",
        "recorder",
        'if is_complete or (is_complete is False and operation.kind != "rewrite"):',
        'if is_complete is False and operation.kind != "rewrite":',
        "test_rules.py::test_a_file_is_copied_once",
    ),
    Mutant(
        "a renaming keeps the name that it replaces",
        "recorder",
        "moving, now_ns)\n        yield from self._name(target, replaced, now_ns)",
        "moving, now_ns)",
        One(1),
    ),
    Mutant(
        "the new name is kept, too, where the old one is made by another rank just now",
        "recorder",
        "yield from self._name(target, replaced, now_ns)\n            return",
        "return",
        "test_two_ranks.py::test_a_name_that_another_rank_makes_while_it_is_renamed",
    ),
    Mutant(
        "a renaming keeps the name that it takes away",
        "recorder",
        "yield from self._name(source, moving, now_ns)",
        "pass",
        One(1),
    ),
    Mutant(
        "what is in a new directory goes with it",
        "recorder",
        "or self._is_in_new(_dirname(path)):",
        "or False:",
        OLD_NAME,
    ),
    Mutant(
        "what is older than a new directory is of another rank",
        "recorder",
        "self._moves[directory] = directory  # what name it had is not known",
        "pass",
        "test_two_ranks.py::test_a_directory_that_another_rank_has_put_in_the_place_of_a_new_one",
    ),
    Mutant(
        "in another directory of the same name, names are recorded again",
        "recorder",
        "if self._directories.setdefault(name, binding.file) != binding.file:",
        "if False:",
        Two(205904),
    ),
    Mutant(
        "a path has the name of the checkpoint, however often a directory above it has moved",
        "path_table",
        "self.put(renamed(path, source, target), value)",
        "self.put(path, value)",
        OLD_NAME,
    ),
    Mutant(
        "what is below a directory that has moved is recorded with its old name",
        "recorder",
        "return self._moves[at] + tail",
        "return directory",
        One(145),
    ),
    Mutant(
        "what another rank makes where a directory was renamed away is new",
        "recorder",
        "        elif moved.target and not moved.is_new:\n",
        "        elif False:\n",
        Two(1103520),
    ),
    Mutant(
        "what was known of paths below a directory is not true of the next one with that name",
        "recorder",
        "        self._made.remove_all(target)  # what",
        "        pass  # what",
        "test_two_ranks.py::test_a_directory_in_one_that_has_come_back_is_not_taken_for_new",
    ),
    Mutant(
        "an old directory in a new one is not new",
        "recorder",
        " and directory not in self._moves and",
        " and",
        OLD_NAME,
    ),
    Mutant(
        "a renaming that has failed has not happened",
        "recorder",
        "happened = _has_happened(moved, seen[_shown_by(moved)])",
        "happened = True",
        One(115),
    ),
    Mutant(
        "after a renaming that has failed, what was known before it is right",
        "recorder",
        "self._moves.take_back()",
        "pass",
        One(115),
    ),
    Mutant(
        "an operation below what is no directory fails",
        "recorder",
        "            return kept  # it fails",
        "            pass  # it fails",
        One(1452),
    ),
    Mutant(
        "attributes of a directory belong to its old name",
        "recorder",
        "if binding.is_file else self._original(path)",
        "",
        One(746),
    ),
    Mutant(
        "what is open for writing at a checkpoint is recorded at once",
        "watching",
        "recorded = [file for file in shared if isinstance(file, OpenFile)]",
        "recorded = []",
        "test_bad_input.py::test_a_file_that_is_removed_while_it_is_open",
    ),
    Mutant(
        "a line is in the log before its change begins",
        "keeping",
        "return uncovered + self._append(lines, last)",
        "self._late = getattr(self, '_late', bytearray()) + lines; return uncovered",
        One(1),
    ),
    Mutant(
        "files that are left alone are not recorded",
        "watching",
        'directory.endswith("/" + _CACHE)',
        "False",
        "test_watching.py::test_what_is_left_alone",
    ),
    Mutant(
        "a copy does not take the process its locks",
        "keeping",
        "fd = keep.open.fd if keep.open is not None and keep.open.is_locked else -1",
        "fd = -1",
        "test_watching.py::test_a_copy_does_not_take_the_process_its_locks",
    ),
    Mutant(
        "above the limit a file is not covered, and named",
        "allowance",
        "if needed > free:",
        "if False:",
        "test_allowance.py::test_ranks_and_intervals_share_the_bound",
    ),
    # what is worked out from it
    Mutant(
        "the earliest record counts, whichever rank wrote it",
        "restart.plan",
        "every, key=lambda item: item[1].time_ns",
        "every, key=lambda item: 0",
        Two(12),
    ),
    Mutant(
        "directories come before what is in them",
        "restart.plan",
        "key=lambda item: item[0].count",
        "key=lambda item: -item[0].count",
        One(12),
    ),
    Mutant(
        "only the records of an operation that has failed are left out",
        "restart.plan",
        "open_from = len(found)",
        "pass",
        One(145),
    ),
    Mutant(
        "a file keeps the hard link that was kept of it",
        "restart.plan",
        "file.link = file.link or log.kept(kept)",
        "pass",
        One(1),
    ),
    Mutant(
        "a renaming whose end is not known leaves both places",
        "restart.moves",
        "self._add(path, renamed(place, moved.source, moved.target))",
        "self._add(path, renamed(place, moved.source, moved.target)); self.settle([moved])",
        One(80854),
    ),
    Mutant(
        "what a rank says of names that another one has changed is named",
        "restart.moves",
        "return self._names_then(path)",
        "return []",
        Two(162),
    ),
    Mutant(
        "a directory that another rank may take for one of its own is named",
        "restart.moves",
        "mistaken = [move.path for by, move in found if self._may_be_taken_for_new(by, move)]",
        "mistaken = []",
        "test_two_ranks.py::test_a_directory_that_another_rank_has_put_in_the_place_of_a_new_one",
    ),
    Mutant(
        "a directory that two ranks have renamed is known to none",
        "restart.moves",
        "for by, move in found:\n            self._add(by, move)",
        "for by, move in found[len(carried) :]:\n            self._add(by, move)",
        "test_two_ranks.py::test_a_new_directory_is_renamed_with_what_another_rank_has_put_there",
    ),
    Mutant(
        "what was written before an image is not cut",
        "restart.plan",
        "nbytes, file.nbytes = end - file.nbytes, end",
        "nbytes = end - file.nbytes",
        "restart/test_putting_back.py::test_what_a_rank_appended_before_its_checkpoint_is_not_cut",
    ),
    # what was kept, what others have changed, which files are covered
    Mutant(
        "a copy that is not what was kept is not put back",
        "restart.kept_files",
        '== record.digest else "does not match its digest"',
        '!= "" else "does not match its digest"',
        "restart/test_kept_files.py::test_a_copy_that_is_not_what_was_kept_is_refused_by_name",
    ),
    Mutant(
        "a line that has a whole older copy can do without a damaged one",
        "restart.kept_files",
        '                if not _has_whole(older, file, renumbered):\n                    raise _damaged("copy"',
        '                if True:\n                    raise _damaged("copy"',
        "restart/test_kept_files.py::test_only_lines_that_need_the_copy_are_refused",
    ),
    Mutant(
        "a hard link is known by its inode",
        "restart.kept_files",
        "if now is None or now.file != each.linked.file:",
        "if now is None:",
        "restart/test_kept_files.py::test_a_hard_link_that_is_gone_or_another_file_is_refused",
    ),
    Mutant(
        "contents that somebody has changed in a kept link are told",
        "restart.kept_files",
        "problems.append(Problem(each.path, _CHANGED_LINK))",
        "pass",
        "restart/test_kept_files.py::test_a_file_that_somebody_has_changed_after_it_was_replaced_is_told",
    ),
    Mutant(
        "a copy with shared blocks is known by inode, length and time",
        "restart.kept_files",
        "if record.clone is not None:",
        "if False:",
        "restart/test_kept_files.py::test_shared_blocks_are_known_by_inode_length_and_time",
    ),
    Mutant(
        "a digest is of the contents, whatever is a hole",
        "copying",
        "            if block != _ZEROS[:size]:",
        "            if True:",
        "restart/test_kept_files.py::test_digests_are_those_of_contents_whatever_is_a_hole",
    ),
    Mutant(
        "a copy that ends with a hole is as long as the file",
        "copying",
        "    _end_at(writing, nbytes)\n    return copied",
        "    return copied",
        "restart/test_kept_files.py::test_digests_are_those_of_contents_whatever_is_a_hole",
    ),
    Mutant(
        "what somebody else has changed since a line is left",
        "restart.others",
        "        touched.add(logs)\n    return found",
        "        touched.add(logs)\n    return []",
        "restart/test_line_notes.py::test_what_somebody_else_has_changed_since_a_line_is_left_and_told",
    ),
    Mutant(
        "what a rank has changed later was changed by nobody else",
        "restart.others",
        "        touched.add(logs)\n    return found",
        "        pass\n    return found",
        "restart/test_line_notes.py::test_in_random_programs_nobody_else_has_changed_anything",
    ),
    Mutant(
        "a symbolic link is known by its target",
        "restart.others",
        "    if binding.is_symlink:",
        "    if False:",
        "restart/test_line_notes.py::test_a_symbolic_link_is_known_by_its_target",
    ),
    Mutant(
        "of a rank without a note nothing is told",
        "restart.others",
        "        if notes is None:\n            return None",
        "        if notes is None:\n            continue",
        "restart/test_line_notes.py::test_where_one_rank_has_no_note_nothing_is_told",
    ),
    Mutant(
        "a note that is not whole says nothing",
        "sealing",
        "    if not found or not isinstance(found[-1], Whole):",
        "    if not found:",
        "test_sealing.py::test_a_note_that_is_not_whole_says_nothing",
    ),
    Mutant(
        "what was kept is on the disk when a line is committed",
        "sealing",
        "            make_durable(keeper.directory)",
        "            pass",
        "test_sealing.py::test_what_might_not_survive_a_failure_of_the_host_is_in_the_line",
    ),
    Mutant(
        "ranks and intervals share one bound of copies",
        "allowance",
        "free = self._limit_bytes - copied_bytes(os.path.dirname(self.interval))",
        "free = self._limit_bytes",
        "test_allowance.py::test_ranks_and_intervals_share_the_bound",
    ),
    Mutant(
        "a copy that was smaller than thought gives its bytes back",
        "allowance",
        "        self._left_bytes += nbytes\n\n    def end",
        "        pass\n\n    def end",
        "test_allowance.py::test_bytes_that_were_not_needed_are_given_back",
    ),
    Mutant(
        "a pattern behind an exclamation mark leaves files out",
        "selection.covering",
        "and not self._left_out.match(path)",
        "",
        "selection/test_patterns.py::test_what_is_covered",
    ),
    Mutant(
        "links in a pattern are followed",
        "selection.covering",
        "above = os.path.realpath(os.path.join(directory, head + slash))",
        "above = os.path.join(directory, head + slash).rstrip('/') or '/'",
        "selection/test_patterns.py::test_links_in_a_pattern_are_followed",
    ),
    Mutant(
        "a file goes back only if all choices since the line cover it",
        "selection.patterns",
        "return before + [chosen for at, chosen in self.later if at > epoch]",
        "return before",
        "selection/test_patterns.py::test_what_was_recorded_since_a_checkpoint_is_what_all_choices_cover",
    ),
    Mutant(
        "a covered file that replaces another one comes back as a file of its own",
        "keeping",
        "            if self._is_leaving and record.binding is not None:",
        "            if False:",
        "selection/test_covering.py::test_a_covered_file_that_replaces_one_that_is_not_comes_back_as_a_file_of_its_own",
    ),
    Mutant(
        "an open file that is not covered is not recorded",
        "watching",
        "[file for file in open_files if not self.is_unwanted(file.path)]",
        "list(open_files)",
        "selection/test_covering.py::test_an_open_file_that_is_not_covered_is_not_recorded",
    ),
    # code of the checkpoint, while ranks load
    Mutant(
        "code is given for loading only where it can be taken back",
        "restart.provisional",
        "        for each in keeper.before(operation):",
        "        for each in keeper.before(operation)[:0]:",
        LOADING + "test_code_stays_as_it_is_where_it_could_not_be_kept",
    ),
    Mutant(
        "directories of code are put aside under other names when it is taken back",
        "restart.provisional",
        'ASIDE = ".ckpt-back-"',
        'ASIDE = ".ckpt-undo-"',
        LOADING + "test_code_is_given_and_taken_back_killed_at_any_step",
    ),
    Mutant(
        "what is made again when code is taken back was changed by nobody else",
        "restart.provisional",
        "        note_again(",
        "        str(",
        LOADING + "test_code_is_given_and_taken_back_killed_at_any_step",
    ),
    Mutant(
        "of several intervals all names are needed to have the code of the oldest line",
        "restart.provisional",
        "    if len(plans) > 1:",
        "    if False:",
        LOADING + "test_code_among_other_files_is_taken_back",
    ),
    Mutant(
        "a directory that has moved brings the code below it back",
        "restart.provisional",
        "        return any(map(_holds_code, plan.directories.get(path, ())))",
        "        return False",
        LOADING + "test_only_code_and_what_it_needs_is_changed",
    ),
    Mutant(
        "data that code does not need are not changed for it",
        "restart.provisional",
        "    return [_part(plan, {*code, *_above(code)})",
        "    return [_part(plan, set(plan.names))",
        LOADING + "test_only_code_and_what_it_needs_is_changed",
    ),
    # all files, until all ranks have loaded
    Mutant(
        "of a file that is cut, what is cut off is kept",
        "restart.provisional",
        'kind="cut" if start else "rewrite", start=start)',
        'kind="append", start=0)',
        LOADING + "test_all_is_given_and_taken_back_or_kept_killed_at_any_step",
    ),
    Mutant(
        "a file that several intervals cut is kept from the lowest offset on",
        "restart.provisional",
        "starts[file] = min(start, starts.get(file, start))",
        "starts.setdefault(file, start)",
        LOADING + "test_a_file_that_several_intervals_cut_is_taken_back_whole",
    ),
    Mutant(
        "a copy of an end is written behind what has stayed",
        "restart.putting_back",
        "            file.overwrite(plan.copy, nbytes, plan.copy_start)\n        elif",
        "            file.overwrite(plan.copy, nbytes)\n        elif",
        LOADING + "test_a_file_that_several_intervals_cut_is_taken_back_whole",
    ),
    Mutant(
        "what is to stay is written down before anything else is done for that",
        "restart.provisional",
        "        write_record(\n            job, key, _KEPT,",
        "        dict(\n            job=job, key=key, x=_KEPT, y=",
        LOADING + "test_all_is_given_and_taken_back_or_kept_killed_at_any_step",
    ),
    Mutant(
        "what lies beside goes to where it belongs when all stays",
        "restart.provisional",
        "            if places.look(path) is not None:",
        "            if False:",
        LOADING + "test_all_is_given_and_kept_from_another_file_system",
    ),
    Mutant(
        "what lies beside is known by its new name when a directory above is renamed",
        "restart.places",
        "self._recording.beside = {renamed(each, path, target): to for each, to in beside}",
        "self._recording.beside = dict(beside)",
        LOADING + "test_what_lies_beside_is_found_when_its_directory_has_been_put_back",
    ),
    # how it is put back
    Mutant(
        "a directory that is made again gets no attributes of one that another rank had made there",
        "restart.putting_back",
        "found.status.is_directory and not plan.is_unsure:",
        "found.status.is_directory:",
        Two(2492868),
    ),
    Mutant(
        "directories of the checkpoint are put aside before anything else",
        "restart.putting_back",
        "        self._put_aside()",
        "        pass",
        One(12),
    ),
    Mutant(
        "a directory with the right name may be another one",
        "restart.putting_back",
        "return path in self._plan.directories and not",
        "return False and not",
        One(339),
    ),
    Mutant(
        "a directory that is made again gets its mode",
        "restart.putting_back",
        "directory.change_mode(stat.S_IMODE(binding.mode))",
        "pass",
        One(44),
    ),
    Mutant(
        "what is put aside is not put where something moves",
        "restart.putting_back",
        "while not unsteady.isdisjoint((above, *_above([above]))):",
        "while False:",
        One(1135),
    ),
    Mutant(
        "a restart that is done again keeps what it has put back below a directory that it has made",
        "restart.putting_back",
        "or not self._is_in_another(path)",
        "or True",
        One(28934),
    ),
    Mutant(
        "only directories are put aside",
        "restart.putting_back",
        "if binding is None or not binding.is_directory:\n                continue  # another rank",
        "if binding is None:\n                continue  # another rank",
        Two(112944),
    ),
    Mutant(
        "names of one file are one file again",
        "restart.putting_back",
        "if source and self._link(source, path, plan):",
        "if False:",
        One(1),
    ),
    Mutant(
        "what is new goes to JOB/undone, not away",
        "restart.putting_back",
        "self._places.move_out(path, target)",
        "os.unlink(path) if not os.path.isdir(path) or os.path.islink(path) else __import__('shutil').rmtree(path)",
        "test_rules.py::test_what_is_new_is_kept_in_the_directory_for_it",
    ),
    Mutant(
        "a file gets its time",
        "restart.places",
        "os.utime(self._path, ns=(os.stat(self._path).st_atime_ns, status.mtime_ns))",
        "pass",
        One(2),
    ),
    Mutant(
        "a file gets its mode",
        "restart.places",
        "os.chmod(self._path, stat.S_IMODE(status.mode))",
        "pass",
        One(2),
    ),
    Mutant(
        "a file that was appended to is cut",
        "restart.places",
        "            os.ftruncate(fd, nbytes)",
        "            pass",
        One(10),
    ),
    Mutant(
        "no symbolic link is followed",
        "restart.places",
        "fd = _status.open_directory(path)",
        "fd = os.open(path, os.O_PATH)",
        "restart/test_places.py::test_a_directory_that_is_a_symbolic_link_now_leads_nowhere",
    ),
    Mutant(
        "a file is opened before it is compared, and changed by its descriptor",
        "restart.places",
        'return f"/proc/self/fd/{self._fd}"',
        'return os.readlink(f"/proc/self/fd/{self._fd}").removesuffix(" (deleted)")',
        "restart/test_places.py::test_a_file_that_is_replaced_while_it_is_changed",
    ),
    # the restart as a whole
    Mutant(
        "all logs are read before anything is changed",
        "restart.checking",
        "for interval in due]",
        "for interval in due[:1]]",
        RESTORING + "test_a_damaged_log_changes_nothing",
    ),
    Mutant(
        "a line is left behind before the first change",
        "restart.restoring",
        "if self.highest > self.line or self.moved is not None or state.foreign:",
        "if self.moved is not None or state.foreign:",
        RESTORING + "test_a_line_is_left_behind_before_the_first_change",
    ),
    Mutant(
        "a line that was left behind is refused",
        "restart.checking",
        "        if low < line <= high:",
        "        if False:",
        RESTORING + "test_a_line_that_was_left_behind_is_refused",
    ),
    Mutant(
        "all intervals since the line are undone, the newest first",
        "restart.checking",
        "due = [interval for interval in reversed(intervals(job))",
        "due = [interval for interval in intervals(job)",
        RESTORING + "test_a_restart_where_no_hard_links_can_be_made_is_killed",
    ),
    Mutant(
        "older intervals know files by their old numbers",
        "restart.restoring",
        "                if _undo(self.job, state, plan, restored):",
        "                if _undo(self.job, state, plan, restored) and False:",
        RESTORING + "test_a_restart_where_no_hard_links_can_be_made_is_killed",
    ),
    Mutant(
        "what somebody else has changed since the end is left",
        "restart.restoring",
        "        found = changed_since(self.job, self.key, self.moved)",
        "        found = []",
        RESTORING + "test_what_somebody_else_has_changed_since_the_end_is_left_and_told",
    ),
    Mutant(
        "what somebody has removed since the end comes back",
        "restart.ending",
        "if now is not None and _told(now) != then:",
        "if _told(now) != then:",
        "test_rules.py::test_what_somebody_has_removed_since_the_end_comes_back",
    ),
    Mutant(
        "a line of a log covers the one before, and the first one which log it is",
        "logs",
        'if line[: _MAC_DIGITS + 1] != f"{before} ".encode("ascii"):',
        "if False:",
        RESTORING + "test_a_log_in_the_place_of_another_one_is_refused",
    ),
    Mutant(
        "a log that has lost its end is refused",
        "logs",
        "    if missing:",
        "    if False:",
        RESTORING + "test_a_log_that_has_lost_its_end_changes_nothing",
    ),
    Mutant(
        "the end of an interval is known once",
        "keeping",
        "self.end.fd >= 0 and not self.has_ended and bool",
        "self.end.fd >= 0 and bool",
        "test_uncut.py::test_the_end_of_an_interval_is_known_once",
    ),
    Mutant(
        "a large file that was written at its end is copied when it is written elsewhere",
        "watching",
        """        _watch.set_ends(self._ends)
        if files:
""",
        "        if files:\n",
        "test_positions.py::test_a_large_file_that_was_written_at_its_end_is_written_elsewhere",
    ),
    Mutant(
        "a file that is opened for appending, and mapped, is copied",
        "operations",
        """_one("rewrite", _followed(fd)) if appends else []""",
        "[]",
        "test_positions.py::test_a_file_that_is_opened_for_appending_is_changed_otherwise",
    ),
    Mutant(
        "an interval that goes on has not ended",
        "watching",
        "        interval.keeper.has_ended = False\n",
        "",
        "test_uncut.py::test_an_interval_that_goes_on_has_an_end_of_its_own",
    ),
    Mutant(
        "an interval that goes on knows the ends of its open files",
        "watching",
        "        _watch.set_ends(interval.ends)\n",
        "",
        "test_uncut.py::test_an_interval_that_goes_on_knows_the_ends_of_its_files",
    ),
    Mutant(
        "what a restart has changed is before the time from which changes count",
        "unrecorded",
        "range(_TICKS)",
        "range(0)",
        "test_unrecorded.py::test_a_file_that_was_put_back_just_before_has_not_changed",
    ),
    Mutant(
        "what an interval is needed for no more is removed",
        "restart.intervals",
        "old = [interval for interval in chain if interval.epoch < oldest]",
        "old = []",
        RESTORING + "test_intervals_before_the_oldest_line_are_removed",
    ),
    Mutant(
        "files are not put back into a copy of the directory",
        "restart.checking",
        "if found and each.has_attributes and not any(binding.file in numbers for binding in found):",
        "if False:",
        RESTORING + "test_files_are_not_put_back_into_a_copy_of_the_directory",
    ),
    # images of several ranks
    Mutant(
        "it is known what a rank has changed last before its image",
        "recorder",
        "if operation.kind in _CHANGES and binding is not None:",
        "if False:",
        BEFORE_IMAGES + "test_a_line_appended_between_the_images_of_two_ranks_is_not_cut",
    ),
    Mutant(
        "what a rank has appended before its image is not cut",
        "restart.plan",
        "written[each.file] = max(written.get(each.file, 0), each.nbytes)",
        "pass",
        BEFORE_IMAGES + "test_a_line_appended_between_the_images_of_two_ranks_is_not_cut",
    ),
    Mutant(
        "what a rank has written before its image, and may be missing, is named",
        "restart.plan",
        "        else:\n            yield Uncovered(each.path, _LOST, 0)",
        "        else:\n            pass",
        BEFORE_IMAGES + "test_a_cell_written_between_the_images_of_two_ranks_is_named",
    ),
    Mutant(
        "of copies that count is one that has all of before the images, if there is one",
        "restart.plan",
        "            _take(file, *later)\n",
        "",
        BEFORE_IMAGES
        + "test_a_cell_written_between_the_images_of_two_ranks_is_there_if_its_rank_has_kept_the_file_again",
    ),
    Mutant(
        "so it is with files that are open at images",
        "restart.plan",
        "            _take(file, record, copy)\n",
        "",
        "test_two_ranks.py::test_what_a_rank_wrote_between_the_image_of_another_one_and_its_own_is_there",
    ),
    Mutant(
        "a file that ranks have replaced on both sides of an image is named",
        "restart.plan",
        "                before.note(log, record)\n                renamings",
        "                renamings",
        BEFORE_IMAGES + "test_a_file_replaced_between_the_images_of_two_ranks_is_named",
    ),
    Mutant(
        "what only one rank has changed comes back, on whichever side of its image",
        "restart.plan",
        "any(rank != other and ns",
        "any(ns",
        BEFORE_IMAGES + "test_what_one_rank_changes_on_both_sides_of_its_own_image_comes_right",
    ),
    Mutant(
        "what a rank has changed long before its image comes back",
        "restart.plan",
        "self._margin_ns + min(each.image_ns, each.time_ns + _HELD_NS)",
        "self._margin_ns + each.image_ns",
        BEFORE_IMAGES + "test_what_the_other_rank_has_changed_long_before_its_image_comes_right",
    ),
    Mutant(
        "what a rank changes when all have their images comes back",
        "restart.plan",
        "self._margin_ns + min(each.image_ns, each.time_ns + _HELD_NS)",
        "self._margin_ns + each.time_ns + _HELD_NS",
        BEFORE_IMAGES + "test_what_a_rank_changes_when_the_other_one_has_its_image_too_comes_right",
    ),
    # which files
    Mutant(
        "a file that is not covered stays",
        "watching",
        "or (self._covers is not None and not self._covers(path))",
        "or False",
        "selection/test_covering.py::test_what_is_not_covered_stays",
    ),
    Mutant(
        "a wish to keep holds for changes since the checkpoint, too",
        "restart.plan",
        "if stays.match(record.path) and not isinstance(record, Moved):",
        "if False:",
        "selection/test_covering.py::test_a_wish_to_keep_holds_for_changes_since_the_checkpoint_too",
    ),
]
