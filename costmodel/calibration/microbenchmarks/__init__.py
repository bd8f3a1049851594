"""What single kernels and collectives measured on one's own devices say of the parameters: from files to priors."""
