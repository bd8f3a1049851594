"""Why a plan: the primer's decision procedure walked for one case, and where the search disagrees with it."""
