"""Ground floor: trials, records, statistics. Imports nothing else of assay."""
