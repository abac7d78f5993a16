# The command that submits a stage, waits for it, and submits the next. Only its definition: the schedule, Airflow or a
# person starts it. Dataflow jobs are not resources here: an `apply` would start a finished one again.
resource "google_cloud_run_v2_job" "launcher" {
  name                = "beamrank"
  location            = var.region
  deletion_protection = false
  depends_on          = [google_project_service.used]

  template {
    template {
      service_account = google_service_account.launcher.email
      max_retries     = 0
      timeout         = "86400s"

      containers {
        image   = var.launcher_image
        command = ["beamrank"]
        args = [
          "run", var.config, "--runner", "dataflow", "--",
          "--project=${var.project}",
          "--region=${var.region}",
          "--temp_location=gs://${google_storage_bucket.temporary.name}/dataflow",
          "--service_account_email=${google_service_account.worker.email}",
        ]
        resources {
          limits = {
            cpu    = "2"
            memory = "8Gi"
          }
        }
      }
    }
  }
}

resource "google_cloud_run_v2_job_iam_member" "scheduler_starts" {
  name     = google_cloud_run_v2_job.launcher.name
  location = var.region
  role     = "roles/run.invoker"
  member   = google_service_account.scheduler.member
}

resource "google_cloud_scheduler_job" "nightly" {
  count       = var.schedule == "" ? 0 : 1
  name        = "beamrank"
  region      = var.region
  description = "Runs ${var.config}. A run that is done already does nothing."
  schedule    = var.schedule
  time_zone   = var.time_zone

  http_target {
    http_method = "POST"
    uri         = "https://run.googleapis.com/v2/${google_cloud_run_v2_job.launcher.id}:run"

    oauth_token {
      service_account_email = google_service_account.scheduler.email
    }
  }

  retry_config {
    retry_count = 0
  }
}
