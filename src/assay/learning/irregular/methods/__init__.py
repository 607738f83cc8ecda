"""Classifiers of irregular series, scikit-learn estimators all; `factories` names them."""
