"""The garbage collector's threshold while a run waits."""

import gc

from assay.core.collector import RELAXED, collector_paused, collector_relaxed


def test_threshold_is_raised_inside_and_restored_after_an_error():
    before = gc.get_threshold()
    try:
        with collector_relaxed():
            assert gc.get_threshold() == RELAXED
            raise KeyError
    except KeyError:
        pass
    assert gc.get_threshold() == before


def test_a_second_run_leaves_the_first_ones_threshold_alone():
    before = gc.get_threshold()
    first = collector_relaxed()
    second = collector_relaxed()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold() == before
    second.__exit__(None, None, None)
    assert gc.get_threshold() == before


def test_a_threshold_that_somebody_set_to_never_stays():
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        with collector_relaxed():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)


def test_pausing_does_not_switch_on_what_was_off():
    gc.disable()
    try:
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
