//! The interface, described.

use axum::response::IntoResponse;

pub fn document() -> String {
    String::from("{}\n")
}

pub async fn serve() -> impl IntoResponse {
    ([(http::header::CONTENT_TYPE, "application/json")], document())
}
