locals {
  services = [
    "artifactregistry.googleapis.com",
    "cloudscheduler.googleapis.com",
    "compute.googleapis.com",
    "dataflow.googleapis.com",
    "run.googleapis.com",
    "storage.googleapis.com",
  ]
  buckets = {
    data      = google_storage_bucket.data.name
    temporary = google_storage_bucket.temporary.name
  }
  accounts = {
    launcher = google_service_account.launcher.member
    worker   = google_service_account.worker.member
  }
}

resource "google_project_service" "used" {
  for_each           = toset(local.services)
  service            = each.value
  disable_on_destroy = false
}

# Plans runs and submits jobs.
resource "google_service_account" "launcher" {
  account_id   = "beamrank-launcher"
  display_name = "beamrank: plans runs and submits Dataflow jobs"
}

# The identity of the jobs' machines: --service_account_email.
resource "google_service_account" "worker" {
  account_id   = "beamrank-worker"
  display_name = "beamrank: Dataflow workers"
}

# Starts the launcher; it has no other permission.
resource "google_service_account" "scheduler" {
  account_id   = "beamrank-scheduler"
  display_name = "beamrank: the schedule"
}

resource "google_project_iam_member" "launcher_submits" {
  project = var.project
  role    = "roles/dataflow.developer"
  member  = google_service_account.launcher.member
}

resource "google_project_iam_member" "worker_works" {
  project = var.project
  role    = "roles/dataflow.worker"
  member  = google_service_account.worker.member
}

resource "google_service_account_iam_member" "launcher_uses_worker" {
  service_account_id = google_service_account.worker.name
  role               = "roles/iam.serviceAccountUser"
  member             = google_service_account.launcher.member
}

resource "google_storage_bucket_iam_member" "objects" {
  for_each = {
    for pair in setproduct(keys(local.buckets), keys(local.accounts)) : join("-", pair) => {
      bucket = local.buckets[pair[0]]
      member = local.accounts[pair[1]]
    }
  }
  bucket = each.value.bucket
  role   = "roles/storage.objectUser"
  member = each.value.member
}

# Beam reads the staging bucket's own settings before it submits.
resource "google_storage_bucket_iam_member" "launcher_reads_bucket" {
  bucket = google_storage_bucket.temporary.name
  role   = "roles/storage.legacyBucketReader"
  member = google_service_account.launcher.member
}

resource "google_artifact_registry_repository_iam_member" "pulls" {
  for_each   = local.accounts
  location   = google_artifact_registry_repository.images.location
  repository = google_artifact_registry_repository.images.name
  role       = "roles/artifactregistry.reader"
  member     = each.value
}
