"""What models are worth inside other libraries."""
