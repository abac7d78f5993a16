resource "google_storage_bucket" "data" {
  name                        = var.bucket
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
}

# Files that Dataflow stages and spills; none must be kept, and soft delete would bill for them.
resource "google_storage_bucket" "temporary" {
  name                        = "${var.bucket}-temporary"
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = true

  soft_delete_policy {
    retention_duration_seconds = 0
  }

  lifecycle_rule {
    condition {
      age = 14
    }
    action {
      type = "Delete"
    }
  }
}

# The repository's name is part of the images' URLs: pipelines/runners/dataflow.py.
resource "google_artifact_registry_repository" "images" {
  repository_id = "beamrank"
  location      = var.region
  format        = "DOCKER"
  description   = "beamrank's worker images: cpu (with Java) and gpu (without)."
  depends_on    = [google_project_service.used]
}
