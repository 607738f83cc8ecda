"""Reading answers: every reader returns Reading(value, how, span), and value None says that nothing could be read."""

from assay.core.answers.letters import choice_letter, choice_letters
from assay.core.answers.reading import Reading, Split, split_reasoning

__all__ = ["Reading", "Split", "choice_letter", "choice_letters", "split_reasoning"]
