"""WikiGame: walk from page to page by links; pages from a local graph, kiwix-serve or a MediaWiki."""
